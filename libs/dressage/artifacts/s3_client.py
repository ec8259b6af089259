"""Clients of an S3 store: connections, credentials and addressing according to the options."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import certifi
import urllib3
from minio import Minio
from minio.credentials.credentials import Credentials
from minio.credentials.providers import EnvAWSProvider, IamAwsProvider, Provider, StaticProvider

from dressage.artifacts.s3_options import S3Options
from dressage.errors import FailedPrecondition, InvalidArgument

_CONNECTIONS = 32
_ROLE_VARIABLES = ("AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI")


class FileProvider(Provider):
    """Credentials in two mounted files, read again when one changes (a rotated Secret)."""

    def __init__(self, access_key_file: Path, secret_key_file: Path) -> None:
        self._files = (access_key_file, secret_key_file)
        self._seen: tuple[int, ...] = ()
        self._credentials: Credentials | None = None

    def retrieve(self) -> Credentials:
        """Return the credentials.

        :raises FailedPrecondition: if a file cannot be read or is empty, naming it.
        """
        try:
            seen = tuple(path.stat().st_mtime_ns for path in self._files)
            if self._credentials is None or seen != self._seen:
                access_key, secret_key = (path.read_text().strip() for path in self._files)
                self._credentials, self._seen = Credentials(access_key, secret_key), seen
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
    """Connections whose responses set a clock."""

    def __init__(self, clock: StoreClock, **options: Any) -> None:
        super().__init__(**options)
        self._clock = clock

    def urlopen(self, *arguments: Any, **options: Any) -> urllib3.BaseHTTPResponse:
        """Make a request as the base class does."""
        response = super().urlopen(*arguments, **options)
        self._clock.observe(response.headers.get("Date"))
        return response


def make_client(
    options: S3Options, *, clock: StoreClock, endpoint: str | None = None, provider: Provider | None = None
) -> Minio:
    """Return a client without retries of its own: `S3Store` retries, for all errors alike.

    :param clock: is set by the responses.
    :param endpoint: replaces that of the options.
    """
    parts = urlsplit(endpoint or options.endpoint)
    pool = _Pool(
        clock,
        timeout=urllib3.Timeout(connect=options.connect_seconds, read=options.read_seconds),
        maxsize=_CONNECTIONS,
        retries=False,
        cert_reqs="CERT_REQUIRED",
        ca_certs=str(options.ca_file) if options.ca_file else certifi.where(),
    )
    client = Minio(
        parts.netloc,
        secure=parts.scheme == "https",
        region=options.region,  # explicit, so that the client does not request it from the store
        credentials=provider or credentials(options),
        http_client=pool,
    )
    if options.addressing == "path":
        client.disable_virtual_style_endpoint()  # type: ignore[no-untyped-call]
    elif options.addressing == "virtual":
        client.enable_virtual_style_endpoint()  # type: ignore[no-untyped-call]
    return client
