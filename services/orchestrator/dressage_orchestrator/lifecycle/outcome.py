"""Outcomes of a session's workflow other than domain errors."""

from __future__ import annotations

from dataclasses import dataclass

from dressage.api.v1 import session_pb2 as v1


@dataclass(frozen=True)
class Outcome:
    """Final state of a session, why as text, and what is exhausted."""

    state: v1.SessionState.ValueType
    message: str = ""
    exhaustion: v1.ExhaustionReason.ValueType = v1.EXHAUSTION_REASON_UNSPECIFIED


BUDGETS = {
    v1.EXHAUSTION_REASON_DOLLARS: "dollars",
    v1.EXHAUSTION_REASON_TOKENS: "tokens",
    v1.EXHAUSTION_REASON_ENV_STEPS: "env_steps",
    v1.EXHAUSTION_REASON_WALL_TIME: "wall_time",
}
"""The reasons that are budgets, with their fields of `Budget`."""


class Exhausted(Exception):
    """Iterations or a budget are exhausted, or the method has no further proposal; the best policy is delivered."""

    def __init__(self, message: str, reason: v1.ExhaustionReason.ValueType = v1.EXHAUSTION_REASON_NO_PROPOSAL) -> None:
        super().__init__(message)
        self.message = message
        self.reason = reason


class Cancelled(Exception):
    """A caller requested a cancellation."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Interrupted(BaseException):
    """This server stops. Not an `Exception`, so that it is not recorded: the workflow continues when a server starts."""
