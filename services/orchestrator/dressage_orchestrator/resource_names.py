"""Resource names (AIP-122): built and taken apart in one place."""

from __future__ import annotations

import re
from typing import NamedTuple

from dressage.errors import InvalidArgument

_SESSION = re.compile(r"sessions/([a-z][a-z0-9-]*)\Z")
_ITERATION = re.compile(r"sessions/([a-z][a-z0-9-]*)/iterations/([0-9]{1,9})\Z")
_RUN = re.compile(r"sessions/([a-z][a-z0-9-]*)/runs/([a-z0-9-]+)\Z")
_ASSIGNMENT = re.compile(r"sessions/([a-z][a-z0-9-]*)/iterations/([0-9]{1,9})/assignments/([a-z0-9-]+)\Z")


class RunParts(NamedTuple):
    """A run's name, taken apart."""

    session: str
    run: str


class AssignmentParts(NamedTuple):
    """An assignment's name, taken apart."""

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
    """The id in a session's name.

    :raises InvalidArgument: when it is none.
    """
    return _match(_SESSION, name, "sessions/{session}").group(1)


def parse_iteration(name: str) -> tuple[str, int]:
    """Session id and number in an iteration's name."""
    match = _match(_ITERATION, name, "sessions/{session}/iterations/{number}")
    return match.group(1), int(match.group(2))


def parse_run(name: str) -> RunParts:
    """Take a run's name apart.

    :raises InvalidArgument: when it is none.
    """
    match = _match(_RUN, name, "sessions/{session}/runs/{run}")
    return RunParts(match.group(1), match.group(2))


def parse_assignment(name: str) -> AssignmentParts:
    """Take an assignment's name apart.

    :raises InvalidArgument: when it is none.
    """
    match = _match(_ASSIGNMENT, name, "sessions/{session}/iterations/{number}/assignments/{assignment}")
    return AssignmentParts(match.group(1), int(match.group(2)), match.group(3))


def _match(pattern: re.Pattern[str], name: str, expected: str) -> re.Match[str]:
    match = pattern.match(name)
    if match is None:
        raise InvalidArgument(field="name", value=name, expected=expected)
    return match
