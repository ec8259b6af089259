"""Formats and parses resource names (AIP-122)."""

from __future__ import annotations

import re
from typing import NamedTuple

from dressage.errors import InvalidArgument

_SESSION = re.compile(r"sessions/([a-z][a-z0-9-]*)\Z")
_ITERATION = re.compile(r"sessions/([a-z][a-z0-9-]*)/iterations/([0-9]{1,9})\Z")
_RUN = re.compile(r"sessions/([a-z][a-z0-9-]*)/runs/([a-z0-9-]+)\Z")
_ASSIGNMENT = re.compile(r"sessions/([a-z][a-z0-9-]*)/iterations/([0-9]{1,9})/assignments/([a-z0-9-]+)\Z")


class RunParts(NamedTuple):
    """The parts of a run's name."""

    session: str
    run: str


class AssignmentParts(NamedTuple):
    """The parts of an assignment's name."""

    session: str
    iteration: int
    assignment: str


def session_name(session: str) -> str:
    """``sessions/{session}``."""
    return f"sessions/{session}"


def iteration_name(session: str, number: int) -> str:
    """``sessions/{session}/iterations/{number}``; also the prefix of the iteration's artifacts."""
    return f"sessions/{session}/iterations/{number}"


def run_name(session: str, run: str) -> str:
    """``sessions/{session}/runs/{run}``."""
    return f"{session_name(session)}/runs/{run}"


def assignment_name(session: str, number: int, assignment: str) -> str:
    """``sessions/{session}/iterations/{number}/assignments/{assignment}``; also the prefix of its artifacts."""
    return f"{iteration_name(session, number)}/assignments/{assignment}"


def member_name(assignment: str, member: str) -> str:
    """``{assignment}/members/{member}``, from an assignment's full name."""
    return f"{assignment}/members/{member}"


def parse_session(name: str) -> str:
    """Parse a session's name into its id.

    :raises InvalidArgument: when the name is malformed.
    """
    return _match(_SESSION, name, "sessions/{session}").group(1)


def parse_iteration(name: str) -> tuple[str, int]:
    """Parse an iteration's name into session id and number.

    :raises InvalidArgument: when the name is malformed.
    """
    match = _match(_ITERATION, name, "sessions/{session}/iterations/{number}")
    return match.group(1), int(match.group(2))


def parse_run(name: str) -> RunParts:
    """Parse a run's name.

    :raises InvalidArgument: when the name is malformed.
    """
    match = _match(_RUN, name, "sessions/{session}/runs/{run}")
    return RunParts(match.group(1), match.group(2))


def parse_assignment(name: str) -> AssignmentParts:
    """Parse an assignment's name.

    :raises InvalidArgument: when the name is malformed.
    """
    match = _match(_ASSIGNMENT, name, "sessions/{session}/iterations/{number}/assignments/{assignment}")
    return AssignmentParts(match.group(1), int(match.group(2)), match.group(3))


def _match(pattern: re.Pattern[str], name: str, expected: str) -> re.Match[str]:
    match = pattern.match(name)
    if match is None:
        raise InvalidArgument(field="name", value=name, expected=expected)
    return match
