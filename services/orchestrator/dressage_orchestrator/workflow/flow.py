"""What a method sees of its session's workflow: durable steps, calls that can be interrupted, the session's row.

A step's result is JSON and is recorded; when the workflow is taken up again, recorded steps are not repeated. So all
that decides the way of a workflow, a look at the database included, happens inside steps. Domain errors are recorded
as results and raised again, alike each time.
"""

from __future__ import annotations

import asyncio
import contextvars
import json
import threading
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import CancelledError
from dataclasses import dataclass
from typing import Any, TypeVar

import structlog
from dbos import DBOS
from dressage import errors
from dressage.api.v1 import event_pb2 as ev
from dressage.api.v1 import session_pb2 as v1
from dressage.artifacts import ArtifactStore
from dressage.envs.cards import EnvironmentCard, load_card
from google.protobuf.json_format import MessageToDict, ParseDict
from google.protobuf.message import Message

from dressage_orchestrator import names
from dressage_orchestrator.clients import AgentClient, JudgeClient, RendererClient
from dressage_orchestrator.database import effects, events, sessions
from dressage_orchestrator.database.engine import Database, DatabaseLost, Fenced, Transaction
from dressage_orchestrator.launch.controller import RunController
from dressage_orchestrator.settings import Settings
from dressage_orchestrator.workflow.outcome import Cancelled, Exhausted, Interrupted

T = TypeVar("T")
M = TypeVar("M", bound=Message)
Json = Any

WAKE_TOPIC = "wake"
_POLL_SECONDS = 0.25
_CANCEL_POLL_SECONDS = 1.0
_LOST_SECONDS = 2.0
_KINDS = {kind.__name__: kind for kind in errors.DressageError.__subclasses__()}


@dataclass(frozen=True)
class Engine:
    """What all workflows of this server share.

    :param loop: where the clients' channels live.
    :param stopping: set when this server stops; workflows then leave at once, unrecorded.
    """

    settings: Settings
    database: Database
    store: ArtifactStore
    agent: AgentClient
    judge: JudgeClient
    renderer: RendererClient
    controller: RunController
    loop: asyncio.AbstractEventLoop
    stopping: threading.Event


class Flow:
    """One session's workflow in one epoch."""

    def __init__(self, engine: Engine, session: str, epoch: int) -> None:
        self.engine = engine
        self.session = session
        self.epoch = epoch
        self.log = structlog.get_logger("dressage.workflow").bind(session=session)
        self.spec = self.transact(lambda tx: sessions.get(tx, session)).spec
        self.environment = self.spec.environment.removeprefix("environments/")

    @property
    def card(self) -> EnvironmentCard:
        """The environment's card."""
        return load_card(self.environment)

    def step(self, name: str, work: Callable[[], Json], *, final: bool = False) -> Json:
        """Does the work once, durably.

        :param name: unique in the workflow.
        :param work: returns JSON; may be repeated if the process dies before its result is recorded.
        :param final: done even when a cancel was asked for.
        :raises Cancelled: when a cancel was asked for.
        :raises DressageError: what the work raised, now or when it was recorded.
        """

        def recorded() -> Json:
            reason = None if final else self.cancel_reason()
            if reason is not None:
                return {"cancelled": reason}
            return self._told(name, work)

        result = DBOS.run_step({"name": name}, lambda: self._patiently(recorded))
        if "cancelled" in result:
            raise Cancelled(result["cancelled"])
        if "exhausted" in result:
            raise Exhausted(result["exhausted"]["reason"], kind=result["exhausted"]["kind"])
        if "error" in result:
            raise _decode(result["error"])
        return result["value"]

    def message_step(self, name: str, kind: type[M], work: Callable[[], M]) -> M:
        """`step` whose result is a protobuf message."""
        return ParseDict(self.step(name, lambda: MessageToDict(work())), kind())

    def _told(self, name: str, work: Callable[[], Json]) -> Json:
        try:
            return {"value": work()}
        except Cancelled as cancelled:
            return {"cancelled": cancelled.reason}
        except Exhausted as exhausted:
            return {"exhausted": {"reason": exhausted.reason, "kind": exhausted.kind}}
        except (DatabaseLost, Fenced):
            raise
        except errors.DressageError as error:
            return {"error": _encode(error)}
        except Exception:
            if self.engine.stopping.is_set():
                raise Interrupted from None
            self.log.exception("step failed", step=name)
            message = f"step {name!r} met a fault of the server; its log tells what"
            return {"error": _encode(errors.Internal(message, reason="UNEXPECTED"))}

    def _patiently(self, work: Callable[[], T]) -> T:
        """Does it again while the database is away: a step may be repeated, and no session fails by an outage.

        :raises Interrupted: when this server stops, or was given up for dead by another.
        """
        while True:
            if self.engine.stopping.is_set():
                raise Interrupted
            try:
                return work()
            except Fenced:
                raise Interrupted from None
            except DatabaseLost as lost:
                self.log.warning("the database is away", error=lost.message)
                self.engine.stopping.wait(_LOST_SECONDS)

    def call(self, work: Awaitable[T], *, seconds: float | None = None, through_cancel: bool = False) -> T:
        """Runs a coroutine in the server's event loop and waits for it. Only inside a step.

        :param seconds: deadline; by default twice that of a client's call.
        :param through_cancel: go on although a cancel was asked for.
        :raises Cancelled: when a cancel is asked for meanwhile; the coroutine is cancelled.
        :raises Interrupted: when this server stops meanwhile.
        """
        allowed = seconds if seconds is not None else 2 * self.engine.settings.call_seconds
        deadline = time.monotonic() + allowed
        next_look = time.monotonic() + _CANCEL_POLL_SECONDS
        # In a context of its own: what the coroutine starts (a trainer's task, say) must not pass for this workflow,
        # or its calls of DBOS would be recorded as our steps.
        future = contextvars.Context().run(asyncio.run_coroutine_threadsafe, _awaited(work), self.engine.loop)
        try:
            while True:
                try:
                    return future.result(_POLL_SECONDS)
                except TimeoutError:
                    if future.done():
                        return future.result()
                except CancelledError:
                    raise Interrupted from None
                now = time.monotonic()
                if self.engine.stopping.is_set():
                    raise Interrupted
                if now > deadline:
                    raise errors.DeadlineExceeded(f"a call took more than {allowed:g} s", reason="CALL_TOO_SLOW")
                if now > next_look and not through_cancel:
                    next_look = now + _CANCEL_POLL_SECONDS
                    reason = self.cancel_reason()
                    if reason is not None:
                        raise Cancelled(reason)
        finally:
            future.cancel()

    def transact(self, work: Callable[[Transaction], T]) -> T:
        """Runs the work in one transaction; again, while the database is away. Inside a step, or reading only."""

        def run() -> T:
            with self.engine.database.begin() as tx:
                return work(tx)

        return self._patiently(run)

    def once(self, tx: Transaction, name: str) -> bool:
        """Whether an effect of that name was not there yet in this epoch (see `effects`)."""
        return effects.first_time(tx, self.session, f"{self.epoch}/{name}")

    def emit(self, tx: Transaction, event: ev.Event, *, iteration: int = 0) -> None:
        """Appends an event to the session."""
        events.append(tx, self.session, event, iteration=iteration)

    def edit(self, tx: Transaction, change: Callable[[v1.Session], None]) -> v1.Session:
        """Changes the session."""
        return sessions.change(tx, self.session, change)

    def warn(self, name: str, reason: str, message: str, *, iteration: int = 0) -> None:
        """Tells a warning, once."""

        def tell() -> None:
            with self.engine.database.begin() as tx:
                if self.once(tx, f"warning/{name}"):
                    event = ev.Event(warning=ev.Warning(reason=reason, message=message))
                    self.emit(tx, event, iteration=iteration)

        self.step(f"warn:{name}", tell)

    def receive(self, seconds: float) -> None:
        """Waits until something wakes this workflow, or so long. Outside of steps."""
        DBOS.recv(WAKE_TOPIC, timeout_seconds=seconds)

    def cancel_reason(self) -> str | None:
        """Why a cancel was asked for; None if it was not."""
        with self.engine.database.begin() as tx:
            return sessions.cancel_reason(tx, self.session)

    def put_text(self, number: int, name: str, text: str) -> None:
        """Writes an artifact of an iteration."""
        self.engine.store.put(f"{names.iteration_name(self.session, number)}/{name}", text.encode())

    def put_json(self, number: int, name: str, value: Message | Json) -> None:
        """Writes an artifact of an iteration as JSON."""
        plain = MessageToDict(value, preserving_proto_field_name=True) if isinstance(value, Message) else value
        self.put_text(number, name, json.dumps(plain, indent=2, sort_keys=True) + "\n")


async def _awaited(work: Awaitable[T]) -> T:
    return await work


def _encode(error: errors.DressageError) -> Json:
    kind = next((k.__name__ for k in type(error).__mro__ if k.__name__ in _KINDS), "Internal")
    field = getattr(error, "field", "")
    return {"kind": kind, "message": error.message, "reason": error.reason, "metadata": error.metadata, "field": field}


def _decode(data: Json) -> errors.DressageError:
    kind = _KINDS[data["kind"]]
    error = kind(data["message"], reason=data["reason"], metadata=data["metadata"])
    if isinstance(error, errors.InvalidArgument):
        error.field = data["field"]
    return error
