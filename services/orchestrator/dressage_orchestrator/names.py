"""Resource names (AIP-122): built and taken apart in one place."""

from __future__ import annotations

import re
from typing import NamedTuple

from dressage.errors import InvalidArgument

_SESSION = re.compile(r"sessions/([a-z][a-z0-9-]*)\Z")
_ITERATION = re.compile(r"sessions/([a-z][a-z0-9-]*)/iterations/([0-9]{1,9})\Z")
_RUN = re.compile(r"sessions/([a-z][a-z0-9-]*)/iterations/([0-9]{1,9})/runs/([a-z0-9-]+)\Z")


class RunParts(NamedTuple):
    """A run's name, taken apart."""

    session: str
    iteration: int
    run: str


def session_name(session: str) -> str:
    """``sessions/{session}``."""
    return f"sessions/{session}"


def iteration_name(session: str, number: int) -> str:
    """``sessions/{session}/iterations/{number}``; also the prefix of the iteration's artifacts."""
    return f"sessions/{session}/iterations/{number}"


def run_name(session: str, number: int, run: str) -> str:
    """``sessions/{session}/iterations/{number}/runs/{run}``; also the prefix of the run's artifacts."""
    return f"{iteration_name(session, number)}/runs/{run}"


def member_name(run: str, member: str) -> str:
    """``{run}/members/{member}``, from a run's full name."""
    return f"{run}/members/{member}"


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
    """The parts of a run's name."""
    match = _match(_RUN, name, "sessions/{session}/iterations/{number}/runs/{run}")
    return RunParts(match.group(1), int(match.group(2)), match.group(3))


def _match(pattern: re.Pattern[str], name: str, expected: str) -> re.Match[str]:
    match = pattern.match(name)
    if match is None:
        raise InvalidArgument(field="name", value=name, expected=expected)
    return match
