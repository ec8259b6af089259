"""Principals of the public API: the API's own token, a file of principals, and signed tokens of an identity provider.

The file is TOML and holds digests, not tokens:

    [[principals]]
    name = "alice"
    role = "user"                      # viewer, user or admin
    token_sha256 = "…"                 # printf %s "$TOKEN" | sha256sum
    quota = {running_sessions = 2, cores = 8, dollars = 20.0, artifact_bytes = 10_000_000_000, requests_per_second = 20}

It is read again when it changes; a file with an error leaves the principals as they were.
"""

from __future__ import annotations

import time
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import structlog
from dressage.errors import FailedPrecondition
from dressage.serving.access import Authenticate, Principal, Quota, Role, by_digest, token_digest
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from dressage_orchestrator import threads
from dressage_orchestrator.oidc import SignedTokens
from dressage_orchestrator.settings import Settings

API_PRINCIPAL = "admin"
"""Name of the principal of the API's own token."""

_CHECK_SECONDS = 2.0
_NAME = r"^[A-Za-z0-9][A-Za-z0-9._@-]{0,99}$"


class _Entry(BaseModel):
    """A principal of the file."""

    model_config = ConfigDict(extra="forbid")

    name: str = Field(pattern=_NAME)
    role: str = Field(pattern="^(viewer|user|admin)$")
    token_sha256: str = Field(pattern="^[0-9a-f]{64}$")
    quota: dict[str, float] = Field(default_factory=dict)


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid")

    principals: list[_Entry] = Field(default_factory=list, max_length=10_000)


@dataclass(frozen=True)
class _Content:
    """What a file of principals contains."""

    by_digest: Mapping[bytes, Principal] = field(default_factory=dict)
    quotas: Mapping[str, Quota] = field(default_factory=dict)
    stamp: object = None


class Principals:
    """The principals of a server, and their quotas."""

    def __init__(self, settings: Settings, *, clock: Callable[[], float] = time.monotonic) -> None:
        """Read the file.

        :raises FailedPrecondition: for a file that cannot be read or contains an error.
        """
        self._path = settings.principals_file
        self._clock = clock
        self._default = Quota(
            running_sessions=settings.quota_running_sessions,
            cores=settings.quota_cores,
            dollars=settings.quota_dollars,
            artifact_bytes=settings.quota_artifact_bytes,
            requests_per_second=settings.requests_per_second,
            open_streams=settings.open_streams,
        )
        tokens = settings.callers()
        self._own = {token_digest(t.get_secret_value()): Principal(API_PRINCIPAL) for t in tokens.values()}
        self._jwt = SignedTokens(settings, clock) if settings.oidc_issuer else None
        self._content = self._load()
        self._check_time = clock()
        self._log = structlog.get_logger("dressage.principals")

    @property
    def authenticate(self) -> Authenticate | None:
        """Recognises callers; None if the server has no principals, and so no authentication."""
        return self._authenticate if self._own or self._path or self._jwt else None

    def quota(self, name: str) -> Quota:
        """The quota of a principal: that of the file, else the server's default, which the API's own token lacks.

        A quota of the file without a limit of streams has the server's, because streams are shared by all callers.
        """
        if name in ("", API_PRINCIPAL):
            return Quota()
        quota = self._content.quotas.get(name, self._default)
        return quota if quota.open_streams is not None else replace(quota, open_streams=self._default.open_streams)

    async def _authenticate(self, token: str) -> Principal | None:
        if self._path is not None and self._clock() - self._check_time > _CHECK_SECONDS:
            self._check_time = self._clock()
            await threads.run(threads.REQUESTS, self._reload)
        principal = await by_digest({**self._content.by_digest, **self._own})(token)
        if principal is None and self._jwt is not None and token.count(".") == 2:
            return await threads.run(threads.REQUESTS, self._jwt.verify, token)
        return principal

    def _reload(self) -> None:
        try:
            if _stamp(self._path) != self._content.stamp:
                self._content = self._load()
                self._log.info("principals read again", principals=len(self._content.by_digest))
        except FailedPrecondition as error:
            self._log.error("the principals stay as they were", error=error.message)

    def _load(self) -> _Content:
        if self._path is None:
            return _Content()
        stamp = _stamp(self._path)
        try:
            entries = _File.model_validate(tomllib.loads(self._path.read_text("utf-8"))).principals
            quotas = {entry.name: _quota(entry.quota) for entry in entries if entry.quota}
        except (OSError, ValueError, ValidationError) as error:
            raise FailedPrecondition(f"{self._path}: {_problem(error)}", reason="BAD_PRINCIPALS") from error
        names = [entry.name for entry in entries]
        twice = {name for name in names if names.count(name) > 1 or name == API_PRINCIPAL}
        if twice:
            message = f"{self._path}: the name {sorted(twice)[0]!r} is taken; names of principals are unique"
            raise FailedPrecondition(message, reason="BAD_PRINCIPALS")
        principals = {bytes.fromhex(e.token_sha256): Principal(e.name, Role[e.role.upper()]) for e in entries}
        return _Content(principals, quotas, stamp)


def _stamp(path: Path | None) -> object:
    try:
        status = path.stat() if path else None
    except OSError:
        return None
    return status and (status.st_mtime_ns, status.st_size, status.st_ino)


def _quota(entry: Mapping[str, float]) -> Quota:
    try:
        quota = Quota(**entry)  # type: ignore[arg-type]
    except TypeError:
        raise ValueError(f"quota: unknown limit in {sorted(entry)}") from None
    if any(value < 0 for value in entry.values()):
        raise ValueError("quota: a limit is negative")
    return quota


def _problem(error: Exception) -> str:
    if isinstance(error, ValidationError):
        first = error.errors(include_input=False)[0]
        return f"{'.'.join(str(part) for part in first['loc'])}: {first['msg']}"
    return str(getattr(error, "strerror", "") or error)
