"""Maps domain errors to gRPC statuses (AIP-193); `dressage.rpc_errors` maps them back.

`to_status` returns a ``google.rpc.Status`` with ``ErrorInfo``; for invalid input also ``BadRequest``, for limits ``RetryInfo``.
Any exception that is no `DressageError` becomes INTERNAL; its traceback is in the log only.
"""

from __future__ import annotations

from datetime import timedelta

import grpc
from google.rpc import code_pb2, error_details_pb2, status_pb2
from grpc_status import rpc_status

from dressage import errors

DOMAIN = "dressage.dev"

_CODES: dict[type[errors.DressageError], int] = {
    errors.InvalidArgument: code_pb2.INVALID_ARGUMENT,
    errors.NotFound: code_pb2.NOT_FOUND,
    errors.AlreadyExists: code_pb2.ALREADY_EXISTS,
    errors.FailedPrecondition: code_pb2.FAILED_PRECONDITION,
    errors.Aborted: code_pb2.ABORTED,
    errors.ResourceExhausted: code_pb2.RESOURCE_EXHAUSTED,
    errors.DeadlineExceeded: code_pb2.DEADLINE_EXCEEDED,
    errors.Unavailable: code_pb2.UNAVAILABLE,
    errors.PermissionDenied: code_pb2.PERMISSION_DENIED,
    errors.Unauthenticated: code_pb2.UNAUTHENTICATED,
    errors.Internal: code_pb2.INTERNAL,
}


def _code(error: errors.DressageError) -> int:
    for kind in type(error).__mro__:
        if kind in _CODES:
            return _CODES[kind]
    return int(code_pb2.INTERNAL)


def to_status(error: errors.DressageError) -> status_pb2.Status:
    """Return the error as ``google.rpc.Status`` with its details."""
    status = status_pb2.Status(code=_code(error), message=error.message)
    details = [error_details_pb2.ErrorInfo(reason=error.reason, domain=DOMAIN, metadata=error.metadata)]
    for detail in details:
        status.details.add().Pack(detail)
    if isinstance(error, errors.InvalidArgument) and error.field:
        bad = error_details_pb2.BadRequest()
        for field, text in error.violations:
            bad.field_violations.add(field=field, description=text, reason=error.reason)
        status.details.add().Pack(bad)
    if isinstance(error, errors.ResourceExhausted) and error.retry_seconds > 0:
        retry = error_details_pb2.RetryInfo()
        retry.retry_delay.FromTimedelta(timedelta(seconds=error.retry_seconds))
        status.details.add().Pack(retry)
    return status


def to_grpc(error: errors.DressageError) -> grpc.Status:
    """Return the error as code, message and trailing metadata, for ``context.abort``."""
    return rpc_status.to_status(to_status(error))
