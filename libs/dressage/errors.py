"""Domain errors, raised by logic and mapped to gRPC statuses in one place (`dressage.serving.errors`).

Every error carries a ``reason`` (UPPER_SNAKE, stable, for programs) and a message (for people); `InvalidArgument`
also names the field, the value seen and what would be right. Nothing here imports gRPC.
"""

from __future__ import annotations

from collections.abc import Mapping

_SHOWN_VALUE = 80


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


class InvalidArgument(DressageError):
    """A value that can never be right; names the field, the value and what is expected."""

    default_reason = "INVALID_ARGUMENT"

    def __init__(
        self,
        message: str = "",
        *,
        field: str = "",
        value: object = None,
        expected: str = "",
        reason: str | None = None,
        metadata: Mapping[str, str] | None = None,
    ) -> None:
        shown = repr(value)
        if len(shown) > _SHOWN_VALUE:
            shown = shown[: _SHOWN_VALUE - 3] + "..."
        if not message:
            message = f"{field}: got {shown}, expected {expected}"
        super().__init__(message, reason=reason, metadata=metadata)
        self.field = field
        self.expected = expected


class NotFound(DressageError):
    """The named resource does not exist."""

    default_reason = "NOT_FOUND"


class AlreadyExists(DressageError):
    """A resource of that name exists with other contents."""

    default_reason = "ALREADY_EXISTS"


class FailedPrecondition(DressageError):
    """The request is sound, but not in the resource's present state."""

    default_reason = "FAILED_PRECONDITION"


class Aborted(DressageError):
    """A concurrent change won (a stale etag); read again and repeat."""

    default_reason = "ABORTED"


class ResourceExhausted(DressageError):
    """A quota, budget or bound is used up."""

    default_reason = "RESOURCE_EXHAUSTED"


class DeadlineExceeded(DressageError):
    """The work did not end in time."""

    default_reason = "DEADLINE_EXCEEDED"


class Unavailable(DressageError):
    """A service or provider cannot be reached now; a later try may succeed."""

    default_reason = "UNAVAILABLE"


class PermissionDenied(DressageError):
    """The caller is known but may not do this."""

    default_reason = "PERMISSION_DENIED"


class Unauthenticated(DressageError):
    """The caller gave no valid credentials."""

    default_reason = "UNAUTHENTICATED"


class Internal(DressageError):
    """A fault of ours."""

    default_reason = "INTERNAL"
