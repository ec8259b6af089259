"""Errors of an S3 store as domain errors that name the setting and the remedy, and which of them are transient."""

from __future__ import annotations

import ssl
from collections.abc import Iterator

import urllib3
from minio.error import MinioException, S3Error, ServerError

from dressage.artifacts.s3_options import S3Options
from dressage.errors import DressageError, NotFound, Unavailable

FAILURES: tuple[type[Exception], ...] = (MinioException, urllib3.exceptions.HTTPError, OSError)
"""Exceptions that the client raises."""

_MISSING = frozenset({"NoSuchKey", "NoSuchVersion", "NotFound"})
_TRANSIENT_CODES = frozenset(
    {
        "SlowDown",
        "SlowDownRead",
        "SlowDownWrite",
        "InternalError",
        "ServiceUnavailable",
        "ServerNotInitialized",
        "XMinioServerNotInitialized",
        "RequestTimeout",
        "OperationAborted",
        "ConditionalRequestConflict",
        "BadDigest",  # damaged in transit
        "IncompleteBody",
        "XAmzContentSHA256Mismatch",
        "TooManyRequests",
    }
)
_TRANSIENT_STATUSES = frozenset({408, 429, 500, 502, 503, 504})


def missing(error: Exception) -> bool:
    """Return whether the object does not exist."""
    return isinstance(error, S3Error) and error.code in _MISSING


def precondition_failed(error: Exception) -> bool:
    """Return whether the condition of a conditional request is false."""
    return isinstance(error, S3Error) and (error.code == "PreconditionFailed" or error.response.status == 412)


def transient(error: BaseException) -> bool:
    """Return whether a retry may succeed."""
    if isinstance(error, S3Error):
        return error.code in _TRANSIENT_CODES or error.response.status in _TRANSIENT_STATUSES
    if isinstance(error, ServerError):
        return error.status_code in _TRANSIENT_STATUSES
    if _tls(error) is not None:
        return False
    return isinstance(error, urllib3.exceptions.HTTPError | OSError)


def domain_error(verb: str, key: str, error: Exception, options: S3Options, bucket: str) -> DressageError:
    """Return the domain error: `NotFound` for a missing artifact, else `Unavailable`."""
    if missing(error):
        return NotFound(f"no artifact {key!r}", reason="ARTIFACT_NOT_FOUND", metadata={"key": key})
    reason, why = _why(error, options, bucket)
    message = f"cannot {verb} artifact {key!r} in the S3 store: {why}" if key else f"cannot {verb} the S3 store: {why}"
    return Unavailable(message, reason=reason, metadata={"key": key} if key else {})


def _why(error: Exception, options: S3Options, bucket: str) -> tuple[str, str]:
    endpoint = options.endpoint
    if isinstance(error, S3Error):
        return _refusal(error, options, bucket)
    tls = _tls(error)
    if tls is not None:
        if "CERTIFICATE_VERIFY_FAILED" in str(tls):
            remedy = "set DRESSAGE_S3_CA_FILE to the PEM file of the authority that signed it, and use its host name"
            return "S3_TLS_FAILED", f"the certificate of {endpoint} is not trusted; {remedy}"
        return (
            "S3_TLS_FAILED",
            f"{endpoint} does not use TLS; if this is intended, write http:// in DRESSAGE_S3_ENDPOINT",
        )
    if isinstance(error, ServerError):
        if error.status_code == 400 and endpoint.startswith("http://"):
            return "S3_TLS_FAILED", f"{endpoint} is a TLS server; write https:// in DRESSAGE_S3_ENDPOINT"
        hint = "is DRESSAGE_S3_ENDPOINT an S3 server's address?"
        return "ARTIFACT_STORE_FAILED", f"{endpoint} answered HTTP {error.status_code}, unlike an S3 store; {hint}"
    remedy = "check that it runs and that DRESSAGE_S3_ENDPOINT is correct and reachable from here"
    return "S3_UNREACHABLE", f"{endpoint} cannot be reached ({_short(error)}); {remedy}"


def _refusal(error: S3Error, options: S3Options, bucket: str) -> tuple[str, str]:
    causes = {
        "NoSuchBucket": (
            "S3_BUCKET_MISSING",
            f"there is no bucket {bucket!r} at {options.endpoint}; create it, correct store_url, or set "
            "DRESSAGE_S3_CREATE_BUCKET=true",
        ),
        "InvalidAccessKeyId": (
            "S3_CREDENTIALS_REFUSED",
            "the store does not know the access key; correct DRESSAGE_S3_ACCESS_KEY (or its file)",
        ),
        "SignatureDoesNotMatch": (
            "S3_CREDENTIALS_REFUSED",
            "the secret key does not match the access key; correct DRESSAGE_S3_SECRET_KEY (or its file)",
        ),
        "ExpiredToken": (
            "S3_CREDENTIALS_REFUSED",
            "the temporary credentials have expired; renew DRESSAGE_S3_SESSION_TOKEN and its keys",
        ),
        "RequestTimeTooSkewed": (
            "S3_CLOCK_SKEW",
            "the clocks of this machine and of the store differ by more than 15 minutes; synchronise them (NTP)",
        ),
        "AuthorizationHeaderMalformed": (
            "S3_REGION_WRONG",
            f"the store is in another region than {options.region!r}; correct DRESSAGE_S3_REGION",
        ),
        "AccessDenied": (
            "S3_ACCESS_DENIED",
            f"access to bucket {bucket!r} is denied; allow the access key of DRESSAGE_S3_ACCESS_KEY to list, get, put "
            "and delete there, and check the key, the secret and the clock",
        ),
    }
    other = "ARTIFACT_STORE_FAILED", f"the store answered {error.code} ({error.message})"
    return causes.get(error.code or "", other)


def _tls(error: BaseException) -> BaseException | None:
    for cause in _chain(error):
        if isinstance(cause, ssl.SSLError | urllib3.exceptions.SSLError):
            return cause
    return None


def _chain(error: BaseException) -> Iterator[BaseException]:
    seen: list[BaseException] = []
    current: BaseException | None = error
    while current is not None and current not in seen:
        seen.append(current)
        yield current
        inner = getattr(current, "reason", None)
        current = inner if isinstance(inner, BaseException) else current.__cause__


def _short(error: BaseException) -> str:
    """Return the innermost cause, which has no URL and so no signature."""
    *_, last = _chain(error)
    text = str(last).rpartition(": ")[2] or type(last).__name__
    return text[:120]
