"""The context of a session's workflow: durable steps, cancellable calls, and the session's store.

The result of a step is JSON and is recorded; when the workflow is resumed, recorded steps are not repeated. Everything that
determines the course of a workflow, reads of the database included, therefore happens inside steps. Domain errors are
recorded as results and raised again in the same way.
"""

from __future__ import annotations

import asyncio
import contextvars
import json
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from threading import Event
from typing import Any, TypeVar

import structlog
from dbos import DBOS, SetWorkflowID
from dbos._error import DBOSStepNondeterminismError, DBOSUnexpectedStepError
from dressage import errors
from dressage.artifacts import ArtifactStore
from dressage.envs.cards import EnvironmentCard, load_card
from google.protobuf.json_format import MessageToDict, ParseDict
from google.protobuf.message import Message

from dressage_orchestrator import resource_names
from dressage_orchestrator.clients import AgentClient, JudgeClient, RendererClient
from dressage_orchestrator.database.engine import Database, DatabaseLost, ExecutorFenced
from dressage_orchestrator.database.store import SessionStore
from dressage_orchestrator.launch.controller import RunController
from dressage_orchestrator.lifecycle.outcome import Cancelled, Exhausted, Interrupted
from dressage_orchestrator.lifecycle.wakeups import Wakeups
from dressage_orchestrator.settings import Settings

T = TypeVar("T")
M = TypeVar("M", bound=Message)
Json = Any

_LOST_SECONDS = 2.0
_LONGEST_REST_SECONDS = 2.0
"""Longest wait of a call without a look whether this server stops; `Wakeups.close` ends it earlier."""
_KINDS = {kind.__name__: kind for kind in errors.DressageError.__subclasses__()}


class HistoryMismatch(errors.FailedPrecondition):
    """The recorded steps of a workflow are not those of this version, which therefore cannot continue it."""

    default_reason = "WORKFLOW_HISTORY_MISMATCH"

    def __init__(self, detail: str) -> None:
        message = f"this version runs other steps than the one that began this epoch of the session ({detail})"
        super().__init__(message, metadata={"remedy": "resume the session: it continues from its last iteration"})


@dataclass(frozen=True)
class Engine:
    """Dependencies that all workflows of this server share.

    :param loop: event loop of the clients' channels.
    :param wakeups: wakes waiting workflows.
    :param stopping: set when this server stops; workflows then end at once without recording an end.
    :param device_pools: names of the pools whose trainers have a device.
    :param cpu_pool: pool for trainings that cannot run on it; empty: there is none.
    """

    settings: Settings
    database: Database
    store: ArtifactStore
    agent: AgentClient
    judge: JudgeClient
    renderer: RendererClient
    controller: RunController
    loop: asyncio.AbstractEventLoop
    wakeups: Wakeups
    stopping: Event
    device_pools: frozenset[str] = frozenset()
    cpu_pool: str = ""

    def retry(self, work: Callable[[], T]) -> T:
        """Run a transaction, with retries while the database is unavailable, so that no session fails because of an outage.

        :raises Interrupted: when this server stops or is fenced.
        """
        while True:
            if self.stopping.is_set():
                raise Interrupted
            try:
                return work()
            except ExecutorFenced:
                raise Interrupted from None
            except DatabaseLost as lost:
                structlog.get_logger("dressage.workflow").warning("the database is unavailable", error=lost.message)
                self.stopping.wait(_LOST_SECONDS)


class SessionContext:
    """One session in one epoch, as its lifecycle and its method use it.

    :ivar store: rows of the session.
    :ivar spec: the spec with defaults filled in; `refresh` reads it again.
    :ivar joins_effects: see `effect`.
    :param children: child workflows that this one may start, by kind.
    """

    def __init__(
        self, engine: Engine, session: str, epoch: int, *, children: Mapping[str, Callable[..., Any]] | None = None
    ) -> None:
        self.engine = engine
        self.session = session
        self.epoch = epoch
        self.log = structlog.get_logger("dressage.workflow").bind(session=session)
        self.store = SessionStore(engine.database, session, epoch, retry=engine.retry)
        self._children = dict(children or {})
        self._generation = engine.wakeups.hold(session)
        self._wakeup_state = engine.wakeups.look(session)
        self._replayed = False
        self._effects: list[Callable[[], object]] = []
        self._mismatched = False
        self.joins_effects = False
        self.refresh()

    def close(self) -> None:
        """Release the context."""
        self.engine.wakeups.release(self.session)

    def refresh(self) -> None:
        """Read the spec again after a step that changed it."""
        self.spec = self.store.get().spec
        self.environment = self.spec.environment.removeprefix("environments/")

    @property
    def is_replay(self) -> bool:
        """Whether the latest step returned its recorded result."""
        return self._replayed

    @property
    def card(self) -> EnvironmentCard:
        """Card of the environment."""
        return load_card(self.environment)

    def iteration_name(self, number: int) -> str:
        """``sessions/{session}/iterations/{number}``."""
        return resource_names.iteration_name(self.session, number)

    # Durable steps.

    def step(self, name: str, work: Callable[[], Json], *, final: bool = False) -> Json:
        """Run a durable step.

        :param name: unique in the workflow.
        :param work: returns JSON; repeated if the process dies before the result is recorded.
        :param final: run the step even if a cancellation is requested.
        :raises Cancelled: when a cancellation is requested.
        :raises DressageError: the error of the work, now or as recorded.
        """

        effects, self._effects = self._effects, []

        def apply() -> None:
            if self.store.mark(f"effects/{name}"):  # not repeated with the step: phases would go back and forth
                for effect in effects:
                    effect()

        def all_of_it() -> Json:
            if effects:
                self.store.together(apply)
            return work()

        def run() -> Json:
            self._replayed = False
            # Before the read: `call` looks again after later changes.
            self._wakeup_state = self.engine.wakeups.look(self.session)
            reason = None if final else self.store.cancel_reason()
            result = self._result(name, all_of_it) if reason is None else {"cancelled": reason}
            self.engine.retry(self.engine.database.sync)  # before the record of the step, which is synced too
            return result

        # DBOS does not call `recorded` if it has the step's result; this then stays True.
        self._replayed = True
        result = self._run_step(lambda: DBOS.run_step({"name": name}, lambda: self.engine.retry(run)), run)
        # Raised outside of the step: DBOS records what the step returns, and a result replays the same way each time.
        if "cancelled" in result:
            raise Cancelled(result["cancelled"])
        if "exhausted" in result:
            raise Exhausted(**result["exhausted"])
        if "error" in result:
            raise _decode(result["error"])
        return result["value"]

    def _run_step(self, run: Callable[[], Json], unrecorded: Callable[[], Json]) -> Json:
        """Run a step on DBOS; without a record after the history of the workflow turned out to be of other steps.

        :raises HistoryMismatch: when it turns out now.
        """
        if self._mismatched:
            return self.engine.retry(unrecorded)
        try:
            return run()
        except (DBOSUnexpectedStepError, DBOSStepNondeterminismError) as error:
            self._mismatched = True
            raise HistoryMismatch(str(error)) from error

    def effect(self, name: str, work: Callable[[], object]) -> None:
        """Change the store without a result, in a step of its own.

        With ``joins_effects`` it is instead a part of the next step, once, at its beginning and in one transaction with the
        other effects: a step costs more than a change. Only where the next step follows at once.

        :param name: unique in the workflow.
        """
        if self.joins_effects:
            self._effects.append(work)
        else:
            self.step(name, work)

    def message_step(self, name: str, kind: type[M], work: Callable[[], M]) -> M:
        """Run a `step` whose result is a protobuf message."""
        return ParseDict(self.step(name, lambda: MessageToDict(work())), kind())

    def _result(self, name: str, work: Callable[[], Json]) -> Json:
        try:
            return {"value": work()}
        except Cancelled as cancelled:
            return {"cancelled": cancelled.reason}
        except Exhausted as exhausted:
            return {"exhausted": {"message": exhausted.message, "reason": exhausted.reason}}
        # Not results of the step: recorded, an outage of the database would fail the session.
        except (DatabaseLost, ExecutorFenced):
            raise
        except errors.DressageError as error:
            return {"error": _encode(error)}
        except Exception:
            if self.engine.stopping.is_set():
                raise Interrupted from None
            self.log.exception("step failed", step=name)
            message = f"Internal error in step {name!r}; see the server log (session {self.session})"
            return {"error": _encode(errors.Internal(message, reason="UNEXPECTED"))}

    # Calls and waiting.

    def call(self, work: Awaitable[T], *, seconds: float | None = None, through_cancel: bool = False) -> T:
        """Run a coroutine in the server's event loop and wait for it. Only inside a step.

        :param seconds: deadline; by default twice that of a client's call.
        :param through_cancel: continue even if a cancellation is requested.
        :raises Cancelled: when a cancellation is requested meanwhile; the coroutine is cancelled.
        :raises Interrupted: when this server stops meanwhile.
        """
        allowed = seconds if seconds is not None else 2 * self.engine.settings.call_seconds
        deadline = time.monotonic() + allowed
        wakeups, state = self.engine.wakeups, self._wakeup_state
        # In a new context: tasks that the coroutine starts, for example of a trainer, must not inherit this workflow, or their
        # calls of DBOS would be recorded as its steps.
        future = contextvars.Context().run(asyncio.run_coroutine_threadsafe, _await(work), self.engine.loop)
        # The end of a call wakes its session alone: polls of a thousand waiting calls kept the cores busy.
        future.add_done_callback(lambda _: wakeups.stir((self.session,)))
        try:
            while True:
                # Also before a result: services stop with this server, and the errors of their calls must not be recorded.
                if self.engine.stopping.is_set() or future.cancelled():
                    raise Interrupted
                if future.done():
                    return future.result()
                remaining = deadline - time.monotonic()
                if remaining < 0:
                    raise errors.DeadlineExceeded(f"a call took more than {allowed:g} s", reason="CALL_TOO_SLOW")
                before, state = state, wakeups.look(self.session)
                # A read only after a change: a poll for each waiting call grew with the number of sessions.
                if state != before and not through_cancel:
                    reason = self.store.cancel_reason()
                    if reason is not None:
                        raise Cancelled(reason)
                wakeups.rest(
                    self.session, state, seconds=min(remaining, _LONGEST_REST_SECONDS), until=lambda _: future.done()
                )
        finally:
            future.cancel()

    def wait(self, seconds: float) -> None:
        """Wait until the session has changed since the last wait, at most this long. Outside of steps.

        The caller polls before and after the wait in a step. After a replayed poll this returns at once, because the change may
        have happened since that poll was recorded.

        :raises Interrupted: when this server stops.
        """
        # Otherwise a session with a thousand recorded reads would wait a thousand times before it continued (decision 0034).
        if self._replayed:
            return
        wakeups, poll = self.engine.wakeups, self.store.change_token if self.engine.database.shared else None
        self._generation = wakeups.wait(self.session, self._generation, seconds=seconds, poll=poll)
        if self.engine.stopping.is_set():
            raise Interrupted

    def start_child(self, kind: str, ident: str, *arguments: Any) -> None:
        """Start a child workflow, unless one of that id exists. Outside of steps.

        :param kind: key of ``children``.
        :param ident: last part of the child's id.
        """

        def start() -> None:
            with SetWorkflowID(f"{self.session}:{self.epoch}:{ident}"):
                DBOS.start_workflow(self._children[kind], self.session, self.epoch, *arguments)

        self._run_step(start, lambda: None)

    def child_ended(self, ident: str) -> bool:
        """Whether the child workflow has ended, with or without an error. Only inside a step."""
        # In a new context as in `call`: within the workflow DBOS would record the query as a step.
        status = contextvars.Context().run(DBOS.get_workflow_status, f"{self.session}:{self.epoch}:{ident}")
        return status is not None and status.status not in ("PENDING", "ENQUEUED", "DELAYED")

    # Artifacts of an iteration.

    def put_text(self, number: int, name: str, text: str, *, synced: bool = True) -> None:
        """Write an artifact of an iteration.

        :param synced: False for a copy of what the database holds, which a power failure may lose (see `ArtifactStore.put`).
        """
        self.engine.store.put(f"{self.iteration_name(number)}/{name}", text.encode(), synced=synced)

    def put_json(self, number: int, name: str, value: Message | Json, *, synced: bool = True) -> None:
        """Write an artifact of an iteration as JSON; otherwise as `put_text`."""
        plain = MessageToDict(value, preserving_proto_field_name=True) if isinstance(value, Message) else value
        self.put_text(number, name, json.dumps(plain, indent=2, sort_keys=True) + "\n", synced=synced)


async def _await(work: Awaitable[T]) -> T:
    return await work


def _encode(error: errors.DressageError) -> Json:
    kind = next((k.__name__ for k in type(error).__mro__ if k.__name__ in _KINDS), "Internal")
    encoded: Json = {"kind": kind, "message": error.message, "reason": error.reason, "metadata": error.metadata}
    return encoded | ({"field": error.field} if isinstance(error, errors.InvalidArgument) else {})


def _decode(data: Json) -> errors.DressageError:
    return _KINDS[data["kind"]](**{name: value for name, value in data.items() if name != "kind"})
