"""Errors of generated code, worded so that a model or a person can correct it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, TypeVar

from dressage.errors import DressageError
from dressage.sandbox.output import excerpt

_SHOWN = 400
MAX_LINE = 1_000_000
"""No line of generated code has a larger number; a sandboxed process that sends one has sent none."""


def shorten(text: str, limit: int = _SHOWN) -> str:
    """Return ``text`` without control characters, cut to ``limit`` characters."""
    return excerpt(text, limit)


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
        self.failure = CheckFailure(shorten(rule), line, shorten(message), shorten(seen))
        super().__init__(str(self.failure), metadata={"rule": self.failure.rule, "line": str(line)})
        self.rule, self.line, self.seen = self.failure.rule, line, self.failure.seen
        self.term, self.row = shorten(term), row


class RewardError(GeneratedCodeError):
    """A reward broke its contract."""

    default_reason = "REWARD_INVALID"


class JudgeError(GeneratedCodeError):
    """A judge broke its contract."""

    default_reason = "JUDGE_INVALID"


class PolicyError(GeneratedCodeError):
    """A code policy or a feedback class broke its contract."""

    default_reason = "POLICY_INVALID"


Kind = TypeVar("Kind", bound=GeneratedCodeError)


def reported_error(reply: Mapping[str, Any], kind: type[Kind], *, rows: int = 0) -> Kind:
    """Return the error that a sandboxed process reported, with texts and numbers within bounds.

    :param rows: number of rows that it may be about; another row is left out.
    """
    failure = reply.get("failure")
    if not isinstance(failure, Mapping) or not isinstance(failure.get("rule"), str):
        return kind("sandbox", "the sandbox sent a malformed failure.")
    row, term = reply.get("row"), reply.get("term", "")
    return kind(
        failure["rule"],
        excerpt(failure.get("message", "")),
        line=line_of(failure.get("line")),
        seen=excerpt(failure.get("seen", "")),
        term=excerpt(term),
        row=row if type(row) is int and 0 <= row < rows else None,
    )


def line_of(value: Any) -> int:
    """Return a line that a sandboxed process sent; 0 for what is none."""
    return value if type(value) is int and 0 <= value <= MAX_LINE else 0
