"""Who may call what: a rule for each method of the public API, rates, and the audit log.

A method without a rule is refused for everybody, so that a new one cannot be open by mistake; a test compares the table with
the descriptors. Principals change what they own; administrators change everything. Everybody reads the sessions of everybody,
except deleted ones and the conversations with models, which their owner and administrators read. Artifacts without a session's
row belong to no principal, and only administrators read them.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import structlog
from dressage.errors import NotFound, PermissionDenied, ResourceExhausted
from dressage.serving.access import Principal, Role, current_principal
from dressage.serving.rates import TokenBuckets

from dressage_orchestrator.database import benchmarks, sessions
from dressage_orchestrator.database.engine import ReadTransaction
from dressage_orchestrator.ownership import check_change
from dressage_orchestrator.principals import Principals
from dressage_orchestrator.service import Sessions

_BURST_SECONDS = 5.0


@dataclass(frozen=True)
class Rule:
    """Who may call a method."""

    role: Role
    owned: Literal["", "session", "benchmark"] = ""
    """Kind of the resource that the request changes, which the caller must own."""
    reads: Literal["", "open", "session", "artifact", "artifacts"] = ""
    """Kind of what the request reads: open to everybody, a session with everything below its name, a file of a session, or the
    files with a prefix, of which the response has those that the caller may read."""
    field: str = "name"
    """Field of the request with the resource's name, or a name or key below it."""

    @property
    def writes(self) -> bool:
        """Whether calls are recorded in the audit log."""
        return self.role > Role.VIEWER


_OPEN = Rule(Role.VIEWER, reads="open")
_SESSION = Rule(Role.VIEWER, reads="session")
_BELOW = Rule(Role.VIEWER, reads="session", field="parent")
_FILE = Rule(Role.VIEWER, reads="artifact", field="key")
_CREATE = Rule(Role.USER)
_CHANGE = Rule(Role.USER, "session")

RULES: dict[str, Rule] = {
    "dressage.v1.SessionService/CreateSession": _CREATE,
    "dressage.v1.SessionService/EstimateSession": _OPEN,
    "dressage.v1.SessionService/GetSession": _SESSION,
    "dressage.v1.SessionService/ListSessions": _OPEN,
    "dressage.v1.SessionService/WatchSession": _SESSION,
    "dressage.v1.SessionService/GetIteration": _SESSION,
    "dressage.v1.SessionService/ListIterations": _BELOW,
    "dressage.v1.SessionService/GetRun": _SESSION,
    "dressage.v1.SessionService/ListRuns": _BELOW,
    "dressage.v1.SessionService/ReadRunLog": _SESSION,
    "dressage.v1.SessionService/GetAssignment": _SESSION,
    "dressage.v1.SessionService/ListAssignments": _BELOW,
    "dressage.v1.SessionService/GetLineage": _SESSION,
    "dressage.v1.SessionService/ListPools": _OPEN,
    "dressage.v1.SessionService/CancelSession": _CHANGE,
    "dressage.v1.SessionService/ResumeSession": _CHANGE,
    "dressage.v1.SessionService/SteerSession": _CHANGE,
    "dressage.v1.SessionService/ApproveSession": _CHANGE,
    "dressage.v1.SessionService/DeleteSession": _CHANGE,
    "dressage.v1.SessionService/UndeleteSession": _CHANGE,
    "dressage.v1.SessionService/LabelRollout": Rule(Role.USER, "session", field="rollout"),
    "dressage.v1.EnvironmentService/GetEnvironment": _OPEN,
    "dressage.v1.EnvironmentService/ListEnvironments": _OPEN,
    "dressage.v1.EnvironmentService/GetEnvironmentModel": _OPEN,
    "dressage.v1.IntentService/Elicit": _CREATE,
    "dressage.v1.ArtifactService/ListArtifacts": Rule(Role.VIEWER, reads="artifacts", field="prefix"),
    "dressage.v1.ArtifactService/GetArtifact": _FILE,
    "dressage.v1.ArtifactService/ReadArtifact": _FILE,
    # It adds a file to the session unless there is one, which needs the owner (see `ArtifactServicer`).
    "dressage.v1.ArtifactService/GetRolloutPoses": Rule(Role.VIEWER, reads="artifact", field="rollout"),
    # It adds a file to the session, which the owner's quota counts.
    "dressage.v1.ArtifactService/GetRolloutVideo": Rule(Role.USER, "session", field="rollout"),
    "dressage.v1.BenchmarkService/CreateBenchmark": Rule(Role.USER, "benchmark"),
    "dressage.v1.BenchmarkService/GetBenchmark": _OPEN,
    "dressage.v1.BenchmarkService/ListBenchmarks": _OPEN,
    "dressage.v1.BenchmarkService/WatchBenchmark": _OPEN,
    "dressage.v1.BenchmarkService/CancelBenchmark": Rule(Role.USER, "benchmark"),
    "dressage.v1.MaintenanceService/CollectGarbage": Rule(Role.ADMIN),
}
"""By `package.Service/Method`."""


class PublicGate:
    """Grants calls by role and owner."""

    def __init__(
        self, service: Sessions, principals: Principals, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._service = service
        self._principals = principals
        self._rates = TokenBuckets(burst_seconds=_BURST_SECONDS, clock=clock)
        self._streams: Counter[str] = Counter()
        self._audit = structlog.get_logger("dressage.audit")

    def enter(self, principal: Principal, method: str) -> None:
        rate = self._principals.quota(principal.name).requests_per_second
        wait = self._rates.take(principal.name, rate) if rate else 0.0
        if rate and wait > 0:
            message = f"{principal.name} calls more than {rate:g} times a second; wait {wait:.1f} s"
            raise ResourceExhausted(message, reason="RATE_LIMITED", retry_seconds=wait)
        self.check_role(principal, method)

    def check_role(self, principal: Principal, method: str) -> None:
        rule = RULES.get(method)
        if rule is None or principal.role < rule.role:
            needed = "it has no rule" if rule is None else f"it needs the role {rule.role.name.lower()}"
            message = f"{principal.name} ({principal.role.name.lower()}) may not call {method}: {needed}"
            raise PermissionDenied(message, reason="ROLE_TOO_LOW")

    @contextmanager
    def stream(self, principal: Principal, method: str) -> Iterator[None]:
        limit = self._principals.quota(principal.name).open_streams
        held = self._streams[principal.name]
        if limit is not None and held >= limit:
            message = (
                f"{principal.name} has {held} open streams (watches, downloads), the limit of one caller "
                f"(open_streams = {limit:g}); close one first"
            )
            raise ResourceExhausted(message, reason="TOO_MANY_STREAMS", metadata={"open_streams": f"{limit:g}"})
        self._streams[principal.name] += 1
        try:
            yield
        finally:
            self._streams[principal.name] -= 1
            if not self._streams[principal.name]:
                del self._streams[principal.name]

    async def check(self, principal: Principal, method: str, request: Any) -> None:
        rule = RULES[method]
        if principal.role is Role.ADMIN:
            return
        text = str(getattr(request, rule.field, ""))
        if rule.reads in ("session", "artifact", "artifacts"):
            await self._check_reading(principal, rule, text)
        if not rule.owned:
            return
        name = "/".join(text.split("/")[:2])
        owner = await self._service.read(lambda tx: _owner(tx, rule.owned, name))
        if owner is not None:
            check_change(principal, name, owner)
        elif rule.owned == "session":
            raise NotFound(f"no session {session_of(name)!r}", reason="SESSION_NOT_FOUND", metadata={"name": name})

    async def _check_reading(self, principal: Principal, rule: Rule, name: str) -> None:
        session = session_of(name)
        access = (await self._service.read(lambda tx: sessions.access_of(tx, [session]))).get(session)
        if access is None and rule.reads == "artifact":
            raise NotFound(f"no artifact {name!r}", reason="ARTIFACT_NOT_FOUND", metadata={"key": name})
        if access is None or access.owner == principal.name:
            return
        if access.deleted:
            raise NotFound(f"session {session!r} is deleted", reason="SESSION_DELETED", metadata={"session": session})
        if is_conversation(name):
            owner = access.owner or "a session without an owner"
            message = f"{name} is a conversation of {owner}; its owner and administrators may read it"
            raise PermissionDenied(message, reason="NOT_THE_OWNER", metadata={"owner": access.owner})

    def record(self, principal: Principal | None, method: str, request: Any, response: Any, code: str) -> None:
        rule = RULES.get(method)
        if principal is None or not (
            rule is None or rule.writes or code in ("PERMISSION_DENIED", "RESOURCE_EXHAUSTED")
        ):
            return
        named = getattr(request, rule.field if rule else "name", "") or getattr(response, "name", "")
        resource = str(named)[:200]
        self._audit.info(
            "call",
            principal=principal.name,
            role=principal.role.name.lower(),
            method=method,
            resource=resource,
            code=code,
        )


def session_of(name: str) -> str:
    """Id of the session that a name or a key is below; empty for others."""
    parts = name.split("/")
    return parts[1] if len(parts) > 1 and parts[0] == "sessions" else ""


def is_conversation(key: str) -> bool:
    """Whether a key, or the keys with this prefix, are of a conversation with a model."""
    parts = key.split("/")
    return len(parts) > 2 and parts[0] == "sessions" and parts[2] == "llm"


def reads_only_own() -> str | None:
    """Name of the running call's principal, unless it reads everything: an administrator, or no caller on an open server."""
    principal = current_principal.get()
    return None if principal is None or principal.role is Role.ADMIN else principal.name


def _owner(tx: ReadTransaction, kind: str, name: str) -> str | None:
    """Owner of a resource; None if there is no such resource, which the handler then reports."""
    if kind == "session":
        return sessions.owner(tx, name.partition("/")[2])
    return benchmarks.owner(tx, name)
