"""Maps a failed call to the domain error that the server raised.

Servers send a `google.rpc.Status` in the trailing metadata: its `ErrorInfo` has reason and metadata, its `BadRequest` the
invalid fields, its `RetryInfo` when to call again. A status without details (of a proxy, an older server, or gRPC itself) maps
by its code.
"""

from __future__ import annotations

from collections.abc import Mapping

import grpc
from google.protobuf.message import DecodeError
from google.rpc import error_details_pb2, status_pb2

from dressage import errors

_DETAILS_KEY = "grpc-status-details-bin"

_BY_CODE: Mapping[grpc.StatusCode, type[errors.DressageError]] = {
    grpc.StatusCode.INVALID_ARGUMENT: errors.InvalidArgument,
    grpc.StatusCode.OUT_OF_RANGE: errors.InvalidArgument,
    grpc.StatusCode.NOT_FOUND: errors.NotFound,
    grpc.StatusCode.ALREADY_EXISTS: errors.AlreadyExists,
    grpc.StatusCode.FAILED_PRECONDITION: errors.FailedPrecondition,
    grpc.StatusCode.ABORTED: errors.Aborted,
    grpc.StatusCode.RESOURCE_EXHAUSTED: errors.ResourceExhausted,
    grpc.StatusCode.DEADLINE_EXCEEDED: errors.DeadlineExceeded,
    grpc.StatusCode.UNAVAILABLE: errors.Unavailable,
    grpc.StatusCode.PERMISSION_DENIED: errors.PermissionDenied,
    grpc.StatusCode.UNAUTHENTICATED: errors.Unauthenticated,
    grpc.StatusCode.UNIMPLEMENTED: errors.FailedPrecondition,
}

_REASON_WITHOUT_DETAILS = {
    grpc.StatusCode.UNIMPLEMENTED: "UNIMPLEMENTED",
    grpc.StatusCode.CANCELLED: "CANCELLED",
}


def from_rpc(error: grpc.RpcError, *, address: str = "") -> errors.DressageError:
    """Return the domain error of a failed call.

    :param error: the exception of a `grpc` or `grpc.aio` stub.
    :param address: of the server; part of the message if it could not be reached.
    """
    code = error.code() or grpc.StatusCode.UNKNOWN
    text = error.details() or code.name.lower().replace("_", " ")
    info, violations, retry_seconds = _details(error)
    kind = _BY_CODE.get(code, errors.Internal)
    reason = info.reason if info is not None and info.reason else _REASON_WITHOUT_DETAILS.get(code)
    metadata = dict(info.metadata) if info is not None else {}
    if kind is errors.InvalidArgument:
        return errors.InvalidArgument(
            # A proxy's message may not have what its details have.
            text if all(each.description in text for each in violations) else "",
            violations=[errors.Violation(each.field, each.description) for each in violations],
            expected=violations[0].description if violations else "",
            reason=reason,
            metadata=metadata,
        )
    if code is grpc.StatusCode.UNAVAILABLE and info is None and address:
        text = f"no answer from {address} ({text}); is a server running there? `dressage serve` starts one"
    if kind is errors.ResourceExhausted:
        return errors.ResourceExhausted(text, reason=reason, metadata=metadata, retry_seconds=retry_seconds)
    return kind(text, reason=reason, metadata=metadata)


def _details(
    error: grpc.RpcError,
) -> tuple[error_details_pb2.ErrorInfo | None, list[error_details_pb2.BadRequest.FieldViolation], float]:
    """Return the ErrorInfo, the field violations and the retry delay (s) of the status in the trailing metadata."""
    raw = next((value for key, value in error.trailing_metadata() or () if key == _DETAILS_KEY), None)
    info: error_details_pb2.ErrorInfo | None = None
    violations: list[error_details_pb2.BadRequest.FieldViolation] = []
    retry = error_details_pb2.RetryInfo()
    if not isinstance(raw, bytes):
        return info, violations, 0.0
    try:
        status = status_pb2.Status.FromString(raw)
    except DecodeError:  # malformed details of a proxy must not hide the status
        return info, violations, 0.0
    for detail in status.details:
        if detail.Is(error_details_pb2.ErrorInfo.DESCRIPTOR):
            info = error_details_pb2.ErrorInfo()
            detail.Unpack(info)
        elif detail.Is(error_details_pb2.BadRequest.DESCRIPTOR):
            bad = error_details_pb2.BadRequest()
            detail.Unpack(bad)
            violations.extend(bad.field_violations)
        elif detail.Is(error_details_pb2.RetryInfo.DESCRIPTOR):
            detail.Unpack(retry)
    return info, violations, retry.retry_delay.ToMilliseconds() / 1000
