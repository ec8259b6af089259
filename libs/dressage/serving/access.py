"""Who calls: principals, and how a server recognises them by the bearer token of a call.

A principal is a person, a program or another service. `current_principal` is the one of the running call; code that runs
outside a call, such as a workflow, has none.
"""

from __future__ import annotations

import enum
import hashlib
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractContextManager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Protocol

from pydantic import SecretStr


class Role(enum.IntEnum):
    """What a principal may do; each role includes the ones before it."""

    VIEWER = 1
    """Reads."""
    USER = 2
    """Creates sessions and changes its own."""
    ADMIN = 3
    """Changes everybody's."""


@dataclass(frozen=True)
class Quota:
    """Limits of one principal; None: no limit."""

    running_sessions: int | None = None
    cores: int | None = None
    """Cores of the pools that its running sessions train in."""
    dollars: float | None = None
    """Cost of model calls of the sessions and elicitations of the last 30 days."""
    artifact_bytes: int | None = None
    """Bytes that are stored for its sessions, also for deleted ones until they are removed."""
    requests_per_second: float | None = None
    open_streams: int | None = None
    """Watches and downloads at the same time."""

    @property
    def limits_sessions(self) -> bool:
        """Whether a session can exceed it."""
        return any(v is not None for v in (self.running_sessions, self.cores, self.dollars, self.artifact_bytes))


@dataclass(frozen=True)
class Principal:
    """A caller with a name that is unique on the server."""

    name: str
    role: Role = Role.ADMIN


class Gate(Protocol):
    """Decides what a recognised caller may do."""

    def enter(self, principal: Principal, method: str) -> None:
        """Check role and rate before the request is looked at.

        :param method: `package.Service/Method`.
        :raises PermissionDenied: for a method that the role does not include.
        :raises ResourceExhausted: for too many calls.
        """

    def check_role(self, principal: Principal, method: str) -> None:
        """Check the role alone, as `enter` does.

        :raises PermissionDenied: for a method that the role does not include.
        """

    async def check(self, principal: Principal, method: str, request: Any) -> None:
        """Check a valid request.

        :raises PermissionDenied: for a resource of another principal.
        """

    def stream(self, principal: Principal, method: str) -> AbstractContextManager[None]:
        """Count a stream of answers while the context is open.

        :raises ResourceExhausted: for too many.
        """

    def record(self, principal: Principal | None, method: str, request: Any, response: Any, code: str) -> None:
        """Record a call that has ended with a gRPC code.

        :param response: of a unary call that succeeded; else None.
        """


Authenticate = Callable[[str], Awaitable[Principal | None]]
"""Returns the principal of a bearer token; None for an unknown token."""

current_principal: ContextVar[Principal | None] = ContextVar("current_principal", default=None)
"""The caller of the running call; None without authentication, and outside calls."""


def token_digest(token: str) -> bytes:
    """Digest by which tokens are compared, so that the time of a comparison reveals nothing of the token."""
    return hashlib.sha256(token.encode()).digest()


def by_digest(principals: Mapping[bytes, Principal]) -> Authenticate:
    """Return what recognises the given tokens.

    The time of a look-up depends on digests alone, from which no token follows.

    :param principals: by the digest of their token.
    """

    async def authenticate(token: str) -> Principal | None:
        return principals.get(token_digest(token))

    return authenticate


def by_tokens(tokens: Mapping[str, SecretStr]) -> Authenticate | None:
    """Return what recognises callers by their tokens; None without tokens.

    :param tokens: by the caller's name.
    """
    named = {name: token.get_secret_value() for name, token in tokens.items()}
    return by_digest({token_digest(token): Principal(name) for name, token in named.items()}) if named else None
