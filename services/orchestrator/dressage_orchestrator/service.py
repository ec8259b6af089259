"""Operations on sessions: create, cancel, resume, delete, estimate. No gRPC here."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import sqlalchemy as sa
import structlog
from dressage.api.internal.v1 import agent_service_pb2 as agent_pb
from dressage.api.v1 import event_pb2 as ev
from dressage.api.v1 import session_pb2 as v1
from dressage.api.v1 import session_service_pb2 as pb
from dressage.artifacts import ArtifactStore
from dressage.envs.cards import EnvironmentCard, load_card
from dressage.envs.device import known_difference
from dressage.envs.options import EnvOptions
from dressage.errors import Aborted, FailedPrecondition, InvalidArgument, NotFound
from dressage.sandbox.machine import Machine

from dressage_orchestrator import models, resource_names, session_ids, threads
from dressage_orchestrator.clients import AgentClient, JudgeClient, require_model
from dressage_orchestrator.clock import DAY
from dressage_orchestrator.database import events, idempotency, retention, sessions, trainings
from dressage_orchestrator.database.driver_errors import domain_error
from dressage_orchestrator.database.engine import Database, DatabaseLost, ReadTransaction, Transaction
from dressage_orchestrator.database.idempotency import RequestKey
from dressage_orchestrator.device_pools import NO_DEVICES, DevicePools, Offer, faster, offer_of
from dressage_orchestrator.launch.local import available_cores
from dressage_orchestrator.lifecycle.method import Estimate, Method, RoleCalls
from dressage_orchestrator.lifecycle.registry import Methods
from dressage_orchestrator.lifecycle.workflows import Workflows
from dressage_orchestrator.models import TEMPLATE, is_language_model
from dressage_orchestrator.ownership import caller
from dressage_orchestrator.quotas import Quotas
from dressage_orchestrator.settings import Settings

T = TypeVar("T")

_PASS_THRESHOLD = 0.7
_MAX_ITERATIONS = 5


class Sessions:
    """Operations on sessions, for servicers and benchmarks.

    :param pools: names of the available pools.
    :param devices: which of them have devices.
    :param machine: memory and scratch space of a trainer, by the name of its pool.
    :param quotas: checks the quotas of sessions' owners.
    :param store: keeps the artifacts of sessions, also of some that do not exist any more.
    """

    def __init__(
        self,
        *,
        settings: Settings,
        database: Database,
        agent: AgentClient,
        judge: JudgeClient,
        workflows: Workflows,
        methods: Methods,
        pools: Collection[str],
        machine: Callable[[str], Machine],
        quotas: Quotas,
        store: ArtifactStore,
        devices: DevicePools = NO_DEVICES,
    ) -> None:
        self._settings = settings
        self._store = store
        self._database = database
        self._agent = agent
        self._judge = judge
        self._devices = devices
        self._workflows = workflows
        self._methods = methods
        self._pools = pools
        self._machine = machine
        self.quotas = quotas
        self._log = structlog.get_logger("dressage.sessions")

    @property
    def methods(self) -> Methods:
        """Methods available to sessions."""
        return self._methods

    async def transact(self, work: Callable[[Transaction], T]) -> T:
        """Run a function in one transaction, in a thread."""

        def run() -> T:
            with self._database.begin() as tx:
                return work(tx)

        return await threads.run(threads.REQUESTS, run)

    async def read(self, work: Callable[[ReadTransaction], T], *, pool: ThreadPoolExecutor = threads.REQUESTS) -> T:
        """Run a function in one read-only transaction, in a thread."""

        def run() -> T:
            with self._database.read() as tx:
                return work(tx)

        return await threads.run(pool, run)

    async def _after_commit(self, session: str, work: Callable[[], None]) -> None:
        """Run work after a commit that the server otherwise does itself later.

        An outage here must not fail the request: a caller that repeats a request without an id would repeat its effect.
        """
        try:
            await threads.run(threads.REQUESTS, work)
        except (DatabaseLost, sa.exc.SQLAlchemyError) as error:
            outage = domain_error(error) if isinstance(error, sa.exc.SQLAlchemyError) else error
            if not isinstance(outage, DatabaseLost):
                raise
            self._log.warning("the session's workflow is started later", session=session, error=outage.message)

    async def create(self, request: pb.CreateSessionRequest, *, owner: str | None = None) -> v1.Session:
        """Store a session and start its workflow.

        :param owner: name of its owner; by default the caller.
        :raises AlreadyExists: when the id is taken, or has artifacts of an earlier session, which would become the owner's.
        :raises ResourceExhausted: when a quota of the owner is used up.
        """
        owner = caller() if owner is None else owner
        key = RequestKey(owner, "CreateSession", request.request_id)
        self._workflows.check_launched()
        answer = await self.transact(lambda tx: _repeat(tx, key, request))
        if answer is not None:
            return answer
        planned = await self._plan(request.spec)
        spec, uses_model, method = planned.spec, planned.uses_model, self._methods.of(planned.spec)
        session_id = request.session_id or session_ids.random_id()
        has_artifacts = bool(request.session_id) and await session_ids.has_artifacts(self._store, session_id)

        def record(tx: Transaction) -> v1.Session:
            again = _repeat(tx, key, request)
            if again is not None:
                return again
            self.quotas.admit(tx, owner, spec, uses_model=uses_model)
            session = sessions.create(tx, session_id, spec, method=method.name, goal=method.goal(spec), owner=owner)
            if has_artifacts:  # here, because a repeated request finds the artifacts of its own session
                raise session_ids.conflict(session_id)
            if planned.moved:
                moved = ev.Warning(reason="NOT_ON_DEVICE", message=planned.note)
                events.append(tx, session_id, ev.Event(warning=moved))
            idempotency.record_request(tx, key, request, session.name)
            return self._enqueue(tx, session_id, admitted)

        admitted: list[tuple[str, int]] = []
        session = await self.transact(record)
        await self._start(session_id, admitted)
        return session

    def _enqueue(self, tx: Transaction, session: str, admitted: list[tuple[str, int]]) -> v1.Session:
        """Let a session wait for its admission; return it with its place, if it waits.

        :param admitted: replaced by the sessions that are admitted.
        """
        admitted[:] = self._workflows.enqueue(tx, session)  # replaced, because the transaction may be repeated
        return sessions.get(tx, session)

    async def _start(self, session: str, admitted: Sequence[tuple[str, int]]) -> None:
        def start() -> None:
            for ident, epoch in admitted:
                self._workflows.start(ident, epoch)

        await self._after_commit(session, start)

    async def prepare(self, spec: v1.SessionSpec) -> tuple[v1.SessionSpec, bool]:
        """Fill in defaults and validate a spec.

        :return: the spec, and whether its model is a language model.
        :raises InvalidArgument: naming the invalid field.
        """
        if not spec.intent.strip():
            raise InvalidArgument(field="spec.intent", value=spec.intent, expected="a description of the behaviour")
        environment = spec.environment.removeprefix("environments/")
        try:
            load_card(environment)
        except NotFound as error:
            metadata = error.metadata
            message = f"spec.environment: {error.message}"
            raise InvalidArgument(message, field="spec.environment", reason=error.reason, metadata=metadata) from None
        _check_options(environment, spec.environment_options)
        method = self._methods.of(spec)
        full = with_defaults(
            spec, method, default_model=self._settings.default_model, default_pool=self._settings.default_pool
        )
        if full.pool not in self._pools:
            expected = f"one of {', '.join(sorted(self._pools))}"
            raise InvalidArgument(field="spec.pool", value=full.pool, expected=expected)
        if full.budget.HasField("wall_time") and full.budget.wall_time.ToTimedelta().total_seconds() <= 0:
            raise InvalidArgument(field="spec.budget.wall_time", value="0 s", expected="a positive duration, or none")
        method.validate(full)
        method.check_machine(full, self._machine(full.pool))
        models.check(full)
        language_models = [await self._check_model(full, entry) for entry in models.models_of(full)]
        return full, any(language_models)

    async def _check_model(self, spec: v1.SessionSpec, entry: v1.RoleModel) -> bool:
        """Refuse a model that is not configured; return whether it is a language model."""
        if entry.model == TEMPLATE:
            return False
        field = "spec.model" if entry.model == spec.model and not entry.api_base else "spec.roles"
        described = await require_model(self._agent, entry, field=field)
        priced = described.HasField("input_dollars_per_million") and described.HasField("output_dollars_per_million")
        if spec.budget.HasField("dollars") and described.language_model and not priced:
            expected = f"no limit in dollars, because the price of {entry.model!r} is unknown. Limit the tokens instead"
            value = spec.budget.dollars
            reason = "PRICE_UNKNOWN"
            raise InvalidArgument(field="spec.budget.dollars", value=value, expected=expected, reason=reason)
        return described.language_model

    async def cancel(self, session: str, reason: str) -> v1.Session:
        """Request the cancellation of a session, unless it has ended."""

        def request(tx: Transaction) -> None:
            if sessions.get(tx, session).state not in sessions.ENDED:
                sessions.request_cancel(tx, session, reason or "cancelled by a caller")

        await self.transact(request)
        await self.release(session)
        await self._after_commit(session, self._workflows.admit)  # a cancelled session does not wait
        self._workflows.wake(session)
        return await self.read(lambda tx: sessions.get(tx, session))

    async def resume(self, request: pb.ResumeSessionRequest, *, principal: str | None = None) -> v1.Session:
        """Start the next epoch of an ended session.

        :param principal: name of the principal that requests it; by default the caller.
        """
        key = RequestKey(caller() if principal is None else principal, "ResumeSession", request.request_id)
        self._workflows.check_launched()
        session = resource_names.parse_session(request.name)

        def reopen(tx: Transaction) -> v1.Session:
            again = _repeat(tx, key, request)
            if again is not None:
                return again
            current = sessions.get(tx, session)
            if current.state not in sessions.ENDED:
                message = f"session {session!r} has not ended; to continue it: dressage sessions watch {session}"
                raise FailedPrecondition(message, reason="SESSION_NOT_ENDED")
            if current.HasField("delete_time"):
                raise FailedPrecondition(f"session {session!r} is deleted; undelete it first", reason="SESSION_DELETED")
            done = sum(1 for entry in sessions.iterations(tx, session) if entry.phase == v1.PHASE_DONE)

            def edit(entry: v1.Session) -> None:
                entry.epoch += 1
                entry.state = v1.SESSION_STATE_PENDING
                entry.state_reason = ""
                entry.ClearField("failure")
                sessions.end_idle(entry, since=entry.end_time, now=tx.now)
                entry.ClearField("end_time")
                more = request.additional_iterations or int(done >= entry.spec.max_iterations)
                entry.spec.max_iterations += more
                _extend_budget(entry.spec.budget, request.budget)
                uses_model = any(is_language_model(model.model) for model in models.models_of(entry.spec))
                self.quotas.admit(tx, entry.owner, entry.spec, uses_model=uses_model, resumed=session)
                entry.ClearField("exhaustion_reason")

            sessions.request_cancel(tx, session, None)
            changed = sessions.change(tx, session, edit)
            idempotency.record_request(tx, key, request, changed.name)
            return self._enqueue(tx, session, admitted)

        admitted: list[tuple[str, int]] = []
        changed = await self.transact(reopen)
        await self._start(session, admitted)
        return changed

    async def release(self, session: str) -> None:
        """Resume a session of an earlier server that this one has left interrupted, because a request concerns it."""
        if self._workflows.is_held(session):
            await threads.run(threads.REQUESTS, self._workflows.release, session)

    async def delete(self, request: pb.DeleteSessionRequest) -> v1.Session:
        """Mark a session as deleted."""
        session = resource_names.parse_session(request.name)

        def mark(tx: Transaction) -> v1.Session:
            current = sessions.get(tx, session)
            if request.etag and request.etag != current.etag:
                message = f"session {session!r} has changed since etag {request.etag!r}; read it again"
                raise Aborted(message, reason="ETAG_MISMATCH", metadata={"etag": current.etag})
            if current.state not in sessions.ENDED:
                if not request.force:
                    message = f"session {session!r} has not ended; cancel it first, or set `force`"
                    raise FailedPrecondition(message, reason="SESSION_NOT_ENDED")
                sessions.request_cancel(tx, session, "deleted by a caller")

            return sessions.delete(tx, session, grace_seconds=self._settings.retention_deleted_days * DAY)

        deleted = await self.transact(mark)
        if request.force:
            await self.release(session)
            await self._after_commit(session, self._workflows.admit)
        self._workflows.wake(session)
        return deleted

    async def undelete(self, session: str) -> v1.Session:
        """Revert a deletion."""

        def unmark(tx: Transaction) -> v1.Session:
            tx.lock(resource_names.session_name(session))
            if not sessions.get(tx, session).HasField("delete_time"):
                raise FailedPrecondition(f"session {session!r} is not deleted", reason="SESSION_NOT_DELETED")
            if retention.is_claimed(tx, session):
                message = f"session {session!r} is being removed, because its grace period has ended"
                raise FailedPrecondition(message, reason="SESSION_PURGED")

            def edit(entry: v1.Session) -> None:
                entry.ClearField("delete_time")
                entry.ClearField("purge_time")

            return sessions.change(tx, session, edit)

        return await self.transact(unmark)

    async def estimate(self, spec: v1.SessionSpec) -> pb.EstimateSessionResponse:
        """Estimate what a session would use."""
        planned = await self._plan(spec)
        full = planned.spec
        card, method = load_card(full.environment.removeprefix("environments/")), self._methods.of(full)
        episode = _episode_steps(full)
        part = method.estimate(full, episode_steps=episode)
        rate = await self.read(
            partial(trainings.first_speed, keys=self._devices.rate_keys(part, full.pool), pool=full.pool)
        )
        seconds = method.seconds(full, part, cores=available_cores(), rate=rate)
        longest = part.longest()
        most = method.seconds(full, longest, cores=available_cores(), rate=rate)
        answer = pb.EstimateSessionResponse(
            spec=full,
            env_steps_per_iteration=part.env_steps,
            minutes_per_iteration=seconds / 60,
            most_env_steps_per_iteration=longest.env_steps,
            most_minutes_per_iteration=max(most, seconds) / 60,
            measured=part.measured,
            method=method.name,
            goal=method.goal(full),
            max_episode_steps=episode,
            terminates_when_unhealthy=_terminates(card, full),
            options_of_author=part.options_of_author,
            note="; ".join(filter(None, (planned.note, method.note(full)))),
        )
        await self._add_calls(answer, part, full)
        return answer

    async def _plan(self, spec: v1.SessionSpec) -> SessionPlan:
        """Check a spec, choose its pool, and fill in the defaults that depend on it."""
        full, uses_model = await self.prepare(spec)
        method, reason = self._methods.of(full), ""
        if not spec.pool and self._devices.automatic and full.pool not in self._devices.names:
            full, reason = await self._faster_pool(spec, full, method)
        placed = await self._devices.place(full, method, self._judge)
        if full.pool in self._devices.names:
            full = self._on_device(spec, full, method)
        return SessionPlan(full, uses_model, "; ".join(filter(None, (reason, placed.note))), placed.moved)

    def _on_device(self, spec: v1.SessionSpec, full: v1.SessionSpec, method: Method) -> v1.SessionSpec:
        """Return a copy with the defaults of a pool of devices."""
        filled = v1.SessionSpec()
        filled.CopyFrom(full)
        method.fill_on_device(filled, request=spec)
        method.validate(filled)
        return filled

    async def _faster_pool(
        self, spec: v1.SessionSpec, full: v1.SessionSpec, method: Method
    ) -> tuple[v1.SessionSpec, str]:
        """Return the spec on the pool that takes less time by measured rates, and the reason; empty where nothing trains."""
        moved = v1.SessionSpec()
        moved.CopyFrom(full)
        moved.pool = min(self._devices.names)
        offers = []
        for candidate in (full, self._on_device(spec, moved, method)):
            part = method.estimate(candidate, episode_steps=_episode_steps(candidate))
            if not part.kind:
                return full, ""
            keys = self._devices.rate_keys(part, candidate.pool)
            rate = await self.read(partial(trainings.first_speed, keys=keys, pool=candidate.pool))
            offers.append(offer_of(candidate, part, rate, on_device=candidate.pool in self._devices.names))
        if difference := known_difference(full.environment.removeprefix("environments/")):
            return full, f"pool {full.pool}: {difference}; `--pool {moved.pool}` trains there nevertheless"

        def seconds(offer: Offer) -> float:
            return method.seconds(offer.spec, offer.estimate, cores=available_cores(), rate=offer.rate)

        chosen, reason = faster(offers[0], offers[1], seconds)
        full.pool = chosen.spec.pool
        return full, reason

    async def _add_calls(self, answer: pb.EstimateSessionResponse, part: Estimate, spec: v1.SessionSpec) -> None:
        """Add the numbers of model calls and their prices to an estimate."""
        totals, dollars, priced = [0.0, 0.0, 0.0], [0.0, 0.0, 0.0], True
        for calls in part.by_role():
            chosen = models.model_of(spec, calls.role)
            described = None if chosen.model == TEMPLATE else await self._agent.describe(chosen.model, chosen.api_base)
            if described is None or not described.language_model:
                continue
            if models.GROUPS.get(calls.role) == models.VIDEO and not described.supports_images:
                continue
            price = _price(described, calls)
            priced = priced and price is not None
            for place, count in enumerate((calls.least, calls.expected, calls.most)):
                totals[place] += count
                dollars[place] += count * (price or 0.0)
        answer.uses_language_model = totals[2] > 0
        answer.least_model_calls_per_iteration = math.floor(totals[0])
        answer.model_calls_per_iteration = math.ceil(totals[1])
        answer.most_model_calls_per_iteration = math.ceil(totals[2])
        if priced:
            answer.least_dollars_per_iteration = dollars[0]
            answer.dollars_per_iteration = dollars[1]
            answer.most_dollars_per_iteration = dollars[2]


@dataclass(frozen=True)
class SessionPlan:
    """A spec with all defaults, on its pool.

    :param note: what the user should know of the pool; empty: nothing.
    :param moved: whether it is another pool than the one that was asked for.
    """

    spec: v1.SessionSpec
    uses_model: bool
    note: str
    moved: bool


def _episode_steps(spec: v1.SessionSpec) -> int:
    """Return the steps after which an episode ends at the latest."""
    card = load_card(spec.environment.removeprefix("environments/"))
    return spec.environment_options.max_episode_steps or card.max_episode_steps


def _price(described: agent_pb.DescribeModelResponse, calls: RoleCalls) -> float | None:
    """Return the price of a call in dollars; None if it is unknown."""
    priced = described.HasField("input_dollars_per_million") and described.HasField("output_dollars_per_million")
    if not priced:
        return None
    input_cost = calls.input_tokens * described.input_dollars_per_million
    return (input_cost + calls.output_tokens * described.output_dollars_per_million) / 1e6


def _terminates(card: EnvironmentCard, spec: v1.SessionSpec) -> bool:
    """Whether an unhealthy state terminates an episode."""
    options = spec.environment_options
    if options.HasField("terminate_when_unhealthy"):
        return options.terminate_when_unhealthy
    return bool(card.options.get("terminate_when_unhealthy", card.can_terminate))


def with_defaults(spec: v1.SessionSpec, method: Method, *, default_model: str, default_pool: str) -> v1.SessionSpec:
    """Copy the spec and fill in all defaults, including those of the method."""
    full = v1.SessionSpec()
    full.CopyFrom(spec)
    full.model = full.model or default_model
    full.pool = full.pool or default_pool
    full.pass_threshold = full.pass_threshold or _PASS_THRESHOLD
    full.video_judging = full.video_judging or v1.VIDEO_JUDGING_DECIDING
    method.fill(full)
    full.max_iterations = full.max_iterations or _MAX_ITERATIONS
    return full


def _repeat(
    tx: Transaction, key: RequestKey, request: pb.CreateSessionRequest | pb.ResumeSessionRequest
) -> v1.Session | None:
    name = idempotency.find_request(tx, key, request)
    return None if name is None else sessions.get(tx, resource_names.parse_session(name))


def _extend_budget(budget: v1.Budget, limits: v1.Budget) -> None:
    """Replace the limits that are set."""
    budget.env_steps = limits.env_steps or budget.env_steps
    budget.tokens = limits.tokens or budget.tokens
    if limits.HasField("dollars"):
        budget.dollars = limits.dollars
    if limits.HasField("wall_time"):
        budget.wall_time.CopyFrom(limits.wall_time)


def _check_options(environment: str, options: v1.EnvironmentOptions) -> None:
    """Reject options that the environment does not have."""
    try:
        EnvOptions.from_dict({field.name: value for field, value in options.ListFields()}).check(environment)
    except InvalidArgument as error:
        raise error.rename(
            lambda field: f"spec.environment_{field}" if field.startswith("options.") else field
        ) from None
