"""A client of an S3 bucket: connections, credentials, addressing and signed requests according to the options."""

from __future__ import annotations

import base64
import hashlib
import os
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit, urlunsplit

import certifi
import urllib3
from minio import Minio, signer
from minio.credentials.credentials import Credentials
from minio.credentials.providers import EnvAWSProvider, IamAwsProvider, Provider, StaticProvider
from minio.error import S3Error, ServerError
from minio.time import to_amz_date

from dressage.artifacts.s3_options import S3Options
from dressage.errors import FailedPrecondition, InvalidArgument

_CONNECTIONS = 32
_REQUEST_SECONDS = 900
"""Lifetime of the signature of a request that is made at once."""
_ROLE_VARIABLES = ("AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI")


class FileProvider(Provider):
    """Credentials in two mounted files, read again when one changes (a rotated Secret)."""

    def __init__(self, access_key_file: Path, secret_key_file: Path) -> None:
        self._files = (access_key_file, secret_key_file)
        self._times: tuple[int, ...] = ()
        self._credentials: Credentials | None = None

    def retrieve(self) -> Credentials:
        """Return the credentials.

        :raises FailedPrecondition: if a file cannot be read or is empty, naming it.
        """
        try:
            times = tuple(path.stat().st_mtime_ns for path in self._files)
            if self._credentials is None or times != self._times:
                access_key, secret_key = (path.read_text().strip() for path in self._files)
                self._credentials, self._times = Credentials(access_key, secret_key), times
        except (OSError, ValueError) as error:
            names = " and ".join(str(path) for path in self._files)
            message = (
                f"cannot read credentials from {names}: {error}; see DRESSAGE_S3_ACCESS_KEY_FILE and _SECRET_KEY_FILE"
            )
            raise FailedPrecondition(message, reason="S3_CREDENTIALS_MISSING") from None
        return self._credentials


def credentials(options: S3Options) -> Provider:
    """Return the source of credentials: settings, else mounted files, else the variables or role of AWS.

    :raises InvalidArgument: if credentials are missing or incomplete.
    """
    if options.access_key_file is not None and options.secret_key_file is not None:
        provider: Provider = FileProvider(options.access_key_file, options.secret_key_file)
        provider.retrieve()
        return provider
    if options.access_key is not None and options.secret_key is not None:
        token = options.session_token.get_secret_value() if options.session_token else None
        return StaticProvider(options.access_key.get_secret_value(), options.secret_key.get_secret_value(), token)
    named = (options.access_key, options.secret_key, options.access_key_file, options.secret_key_file)
    if not any(named):
        if os.environ.get("AWS_ACCESS_KEY_ID") and os.environ.get("AWS_SECRET_ACCESS_KEY"):
            return EnvAWSProvider()
        if any(name in os.environ for name in _ROLE_VARIABLES):
            return IamAwsProvider()
    raise InvalidArgument(
        "an s3:// store needs credentials: set DRESSAGE_S3_ACCESS_KEY and DRESSAGE_S3_SECRET_KEY, or "
        "DRESSAGE_S3_ACCESS_KEY_FILE and DRESSAGE_S3_SECRET_KEY_FILE (both of a pair)",
        field="DRESSAGE_S3_ACCESS_KEY",
        reason="S3_CREDENTIALS_MISSING",
    )


class StoreClock:
    """The store's time of day: the date of its last response, continued by this machine's monotonic clock.

    The lifetime of a presigned URL is short and counts by the store's clock, from which this machine's may differ.

    :param wall: this machine's time of day, for as long as there was no response.
    :param monotonic: seconds of a clock that is never set.
    """

    def __init__(
        self,
        wall: Callable[[], datetime] = lambda: datetime.now(UTC),
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._wall, self._monotonic = wall, monotonic
        self._observed: tuple[datetime, float] | None = None

    def observe(self, date: str | None) -> None:
        """Take the ``Date`` of a response; one that is missing or cannot be read changes nothing."""
        try:
            response_time = parsedate_to_datetime(date) if date else None
        except ValueError:
            return
        if response_time is not None:
            self._observed = (response_time.astimezone(UTC), self._monotonic())

    def now(self) -> datetime:
        """Return the time, UTC: behind the store's by at most a second and the time that a response took, never ahead of it."""
        if (observed := self._observed) is None:
            return self._wall()
        return observed[0] + timedelta(seconds=self._monotonic() - observed[1])


class _Pool(urllib3.PoolManager):
    """Connections whose responses set a clock. An error without XML becomes `ServerError`, which has the status."""

    def __init__(self, clock: StoreClock, **options: Any) -> None:
        super().__init__(**options)
        self._clock = clock

    def urlopen(self, method: str, *arguments: Any, **options: Any) -> urllib3.BaseHTTPResponse:
        """Make a request as the base class does."""
        response = super().urlopen(method, *arguments, **options)
        self._clock.observe(response.headers.get("Date"))
        types = response.headers.get("Content-Type", "").split(";")
        # Only of these does Minio make an `S3Error`.
        is_xml = "application/xml" in types and response.headers.get("Content-Length") != "0"
        if response.status >= 300 and method != "HEAD" and not is_xml:
            response.drain_conn()
            response.release_conn()
            raise ServerError(f"HTTP {response.status}", response.status)
        return response


class S3Client:
    """A client of one bucket: `Minio`, and requests that it has no public function for.

    Those are made to presigned URLs, as trainers make theirs: `Minio.put_object` has no ``If-None-Match``, and
    `Minio.get_presigned_url` signs the host alone.

    It has no retries of its own: `S3Store` retries, for all errors alike.

    :ivar minio: the client of the library.
    :param clock: is set by the responses.
    :param endpoint: replaces that of the options.
    """

    def __init__(
        self, options: S3Options, bucket: str, *, clock: StoreClock, provider: Provider, endpoint: str | None = None
    ) -> None:
        parts = urlsplit(endpoint or options.endpoint)
        self._bucket, self._region, self._clock, self._provider = bucket, options.region, clock, provider
        self._pool = _Pool(
            clock,
            timeout=urllib3.Timeout(connect=options.connect_seconds, read=options.read_seconds),
            maxsize=_CONNECTIONS,
            retries=False,
            cert_reqs="CERT_REQUIRED",
            ca_certs=str(options.ca_file) if options.ca_file else certifi.where(),
        )
        self.minio = Minio(
            parts.netloc,
            secure=parts.scheme == "https",
            region=options.region,  # explicit, so that the client does not request it from the store
            credentials=provider,
            http_client=self._pool,
        )
        if options.addressing == "path":
            self.minio.disable_virtual_style_endpoint()  # type: ignore[no-untyped-call]
        elif options.addressing == "virtual":
            self.minio.enable_virtual_style_endpoint()  # type: ignore[no-untyped-call]

    def send(
        self,
        method: str,
        name: str,
        body: bytes = b"",
        *,
        headers: Mapping[str, str] | None = None,
        query: Mapping[str, str] | None = None,
    ) -> urllib3.BaseHTTPResponse:
        """Make a request about an object; the store verifies the body by its MD5, which the signature includes.

        :raises MinioException: for a refusal.
        """
        # MD5 because S3 verifies it: a guard against damage, not against an attacker.
        digest = base64.b64encode(hashlib.md5(body, usedforsecurity=False).digest()).decode()
        every = {**(headers or {}), "Content-MD5": digest}
        url = self.presign(method, name, headers=every, seconds=_REQUEST_SECONDS, query=query)
        response = self._pool.urlopen(method, url, body=body, headers=every)
        if b"<Error" in response.data:  # S3 completes an upload with status 200 before it knows that it fails
            raise S3Error.fromxml(response)
        if response.status >= 300:
            raise ServerError(f"HTTP {response.status}", response.status)
        return response

    def presign(
        self,
        method: str,
        name: str,
        *,
        headers: Mapping[str, str],
        seconds: int,
        query: Mapping[str, str] | None = None,
        now: datetime | None = None,
    ) -> str:
        """Return a URL with which any caller may make one kind of request, without a request to the store.

        The algorithm is AWS Signature Version 4 with query parameters.

        :param headers: that the request has to send as they are.
        :param seconds: lifetime.
        :param now: start of the lifetime, UTC; None: now by the store's clock.
        """
        now = now or self._clock.now()
        credentials = self._provider.retrieve()
        url = urlsplit(self.minio.get_presigned_url(method, self._bucket, name))
        signed = {"host": url.netloc, **{key.lower(): value for key, value in headers.items()}}
        names = ";".join(sorted(signed))
        parameters = {
            **(query or {}),
            "X-Amz-Algorithm": signer.SIGN_V4_ALGORITHM,
            "X-Amz-Credential": signer.get_credential_string(credentials.access_key, now, self._region),
            "X-Amz-Date": to_amz_date(now),
            "X-Amz-Expires": str(seconds),
            "X-Amz-SignedHeaders": names,
            **({"X-Amz-Security-Token": credentials.session_token} if credentials.session_token else {}),
        }
        text = "&".join(f"{key}={quote(value, safe='')}" for key, value in sorted(parameters.items()))
        lines = "".join(f"{key}:{' '.join(value.split())}\n" for key, value in sorted(signed.items()))
        # Unsigned, because a URL is presigned before its body exists.
        canonical = f"{method}\n{url.path}\n{text}\n{lines}\n{names}\nUNSIGNED-PAYLOAD"
        scope = parameters["X-Amz-Credential"].partition("/")[2]
        digest = hashlib.sha256(canonical.encode()).hexdigest()
        to_sign = f"{signer.SIGN_V4_ALGORITHM}\n{to_amz_date(now)}\n{scope}\n{digest}"
        signature = signer.post_presign_v4(to_sign, credentials.secret_key, now, self._region)
        return urlunsplit(url._replace(query=f"{text}&X-Amz-Signature={signature}"))
