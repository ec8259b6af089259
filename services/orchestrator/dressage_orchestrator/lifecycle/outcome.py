"""Outcomes of a session's workflow other than domain errors."""

from __future__ import annotations

from dataclasses import dataclass

from dressage.api.v1 import session_pb2 as v1


@dataclass(frozen=True)
class Outcome:
    """Final state of a session and its reason.

    :param budget: kind of the exhausted budget; empty if none.
    """

    state: v1.SessionState.ValueType
    reason: str = ""
    budget: str = ""


class Exhausted(Exception):
    """Iterations or a budget are exhausted, or the method has no further proposal; the best policy is delivered."""

    def __init__(self, reason: str, *, kind: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.kind = kind


class Cancelled(Exception):
    """A caller requested a cancellation."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Interrupted(BaseException):
    """This server stops. Not an `Exception`, so that it is not recorded: the workflow continues when a server starts."""
