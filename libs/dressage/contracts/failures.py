"""Errors of generated code, worded so that a model or a person can correct it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from dressage.errors import DressageError

_SHOWN = 400
MAX_LINE = 1_000_000
"""No line of generated code has a larger number; one that a sandboxed process sends is cut to it."""


def shorten(text: str, limit: int = _SHOWN) -> str:
    """Return ``text``, cut to ``limit`` characters."""
    return text if len(text) <= limit else text[: limit - 3] + "..."


@dataclass(frozen=True)
class Violation:
    """A rule that the source breaks, detected without running it."""

    rule: str
    """Stable identifier in kebab-case."""
    line: int
    """1-based line of the source; 0 for the source as a whole."""
    message: str
    """One plain sentence, remedy included."""


@dataclass(frozen=True)
class CheckFailure:
    """One failed check of generated code."""

    rule: str
    line: int
    message: str
    seen: str = ""
    """The actual value, shape or exception text."""

    def to_dict(self) -> dict[str, Any]:
        """Return the failure as JSON values."""
        return asdict(self)

    def __str__(self) -> str:
        place = f"line {self.line}: " if self.line else ""
        return f"[{self.rule}] {place}{self.message}" + (f" Seen: {self.seen}" if self.seen else "")


class GeneratedCodeError(DressageError):
    """Generated code broke its contract; `failure` has the details.

    :param rule: identifier of the broken rule.
    :param message: one plain sentence with the remedy.
    :param line: 1-based line of the generated source, 0 if unknown.
    :param seen: the actual value.
    :param term: the reward term concerned, if one is.
    :param row: the environment concerned, if one is.
    """

    default_reason = "GENERATED_CODE_INVALID"

    def __init__(
        self,
        rule: str,
        message: str,
        *,
        line: int = 0,
        seen: str = "",
        term: str = "",
        row: int | None = None,
    ) -> None:
        self.failure = CheckFailure(rule, line, shorten(message), shorten(seen))
        super().__init__(str(self.failure), metadata={"rule": rule, "line": str(line)})
        self.rule, self.line, self.seen, self.term, self.row = rule, line, self.failure.seen, term, row


class RewardError(GeneratedCodeError):
    """A reward broke its contract."""

    default_reason = "REWARD_INVALID"


class JudgeError(GeneratedCodeError):
    """A judge broke its contract."""

    default_reason = "JUDGE_INVALID"


class PolicyError(GeneratedCodeError):
    """A code policy or a feedback class broke its contract."""

    default_reason = "POLICY_INVALID"
