"""Domain errors, raised by logic and mapped to gRPC statuses in one place (`dressage.serving.errors`).

Every error carries a ``reason`` (UPPER_SNAKE, stable, for programs) and a message (for people). `InvalidArgument` also
carries the field and the expected value. Nothing here imports gRPC.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Self

_SHOWN_VALUE = 80
_NO_VALUE = object()


class DressageError(Exception):
    """Base of all errors that a user may see.

    :param message: one plain sentence, without secrets.
    :param reason: stable machine-readable cause in UPPER_SNAKE_CASE.
    :param metadata: further facts as strings (resource names, limits).
    """

    default_reason = "INTERNAL"

    def __init__(self, message: str, *, reason: str | None = None, metadata: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.reason = reason or self.default_reason
        self.metadata = dict(metadata or {})


class Violation(NamedTuple):
    """What is wrong with a field."""

    field: str
    text: str


class InvalidArgument(DressageError):
    """A value that can never be right.

    Without ``message``, the message is ``field: problem (got value); expected what. Remedy.``

    :param message: the whole message, where the parts do not fit.
    :param field: path of the field or name of the argument; `rename` turns it into the name that the user wrote.
    :param problem: what is wrong.
    :param value: the value received; shown shortened. Leave it out where there is none to show.
    :param expected: what would be right, as a noun phrase.
    :param remedy: what to do, as a sentence.
    :param violations: the invalid fields, in place of one field with its parts.
    """

    default_reason = "INVALID_ARGUMENT"

    def __init__(
        self,
        message: str = "",
        *,
        field: str = "",
        problem: str = "invalid value",
        value: object = _NO_VALUE,
        expected: str = "",
        remedy: str = "",
        violations: Sequence[Violation] = (),
        reason: str | None = None,
        metadata: Mapping[str, str] | None = None,
    ) -> None:
        if not violations:
            text = message.removeprefix(f"{field}: ") if message else _text(problem, value, expected, remedy)
            violations = (Violation(field, text),)
        super().__init__(message or _violations_text(violations), reason=reason, metadata=metadata)
        self.violations = tuple(violations)
        self.expected = expected

    @property
    def field(self) -> str:
        """The first invalid field; empty if the error names none."""
        return self.violations[0].field

    def rename(self, name: Callable[[str], str]) -> Self:
        """Name the fields in another way, also at the beginning of the message, and return the error."""
        begins_with_fields = self.message == _violations_text(self.violations)
        self.violations = tuple(Violation(name(field), text) for field, text in self.violations)
        if begins_with_fields:
            self.message = _violations_text(self.violations)
            self.args = (self.message,)
        return self


def _violations_text(violations: Sequence[Violation]) -> str:
    return "; ".join(f"{field}: {text}" for field, text in violations)


def _text(problem: str, value: object, expected: str, remedy: str) -> str:
    text = problem
    if value is not _NO_VALUE:
        value_text = repr(value)
        text += f" (got {value_text if len(value_text) <= _SHOWN_VALUE else value_text[: _SHOWN_VALUE - 3] + '...'})"
    if expected:
        text += f"; expected {expected}"
    return f"{text}. {remedy}" if remedy else text


class NotFound(DressageError):
    """The named resource does not exist."""

    default_reason = "NOT_FOUND"


class AlreadyExists(DressageError):
    """A resource of that name exists with other contents."""

    default_reason = "ALREADY_EXISTS"


class FailedPrecondition(DressageError):
    """The request is valid, but not in the current state of the resource."""

    default_reason = "FAILED_PRECONDITION"


class Aborted(DressageError):
    """The resource changed meanwhile (a stale etag); read it again and retry."""

    default_reason = "ABORTED"


class ResourceExhausted(DressageError):
    """A quota, budget or limit is reached.

    :param retry_seconds: time after which the same call may succeed; 0: unknown.
    """

    default_reason = "RESOURCE_EXHAUSTED"

    def __init__(
        self,
        message: str,
        *,
        reason: str | None = None,
        metadata: Mapping[str, str] | None = None,
        retry_seconds: float = 0.0,
    ) -> None:
        super().__init__(message, reason=reason, metadata=metadata)
        self.retry_seconds = retry_seconds


class DeadlineExceeded(DressageError):
    """The work did not end before its deadline."""

    default_reason = "DEADLINE_EXCEEDED"


class Unavailable(DressageError):
    """A service or provider cannot be reached now; a retry may succeed."""

    default_reason = "UNAVAILABLE"


class PermissionDenied(DressageError):
    """The caller is known but may not do this."""

    default_reason = "PERMISSION_DENIED"


class Unauthenticated(DressageError):
    """The caller gave no valid credentials."""

    default_reason = "UNAUTHENTICATED"


class Internal(DressageError):
    """An error in Dressage itself."""

    default_reason = "INTERNAL"


class ReadOnly(AttributeError):
    """Code sets an attribute of a state or a trajectory."""


class UnknownField(AttributeError):
    """A state or a trajectory has no such field."""

    def __init__(self, owner: str, name: str, fields: list[str]) -> None:
        near = difflib.get_close_matches(name, fields, n=4, cutoff=0.5) or fields
        super().__init__(f"the {owner} has no field {name!r}; near matches: {', '.join(near)}")
