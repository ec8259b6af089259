"""How a session's workflow may end, besides by a domain error."""

from __future__ import annotations

from dataclasses import dataclass

from dressage.api.v1 import session_pb2 as v1


@dataclass(frozen=True)
class Outcome:
    """The state a session ends in, and why.

    :param budget: kind of the budget that was used up, if one was.
    """

    state: v1.SessionState.ValueType
    reason: str = ""
    budget: str = ""


class Exhausted(Exception):
    """Iterations or a budget are used up, or nothing better is known; what there is gets delivered."""

    def __init__(self, reason: str, *, kind: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.kind = kind


class Cancelled(Exception):
    """A caller asked to cancel."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Interrupted(BaseException):
    """This server stops. Not an `Exception`, so that nothing records it: the workflow goes on when a server starts."""
