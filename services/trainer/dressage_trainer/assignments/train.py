"""One training, as the supervisor runs it: a learner in the sandbox, evaluations beside it, uploads behind it.

Two tasks serve the learner. The listener takes its messages at once, so that live progress never waits. What takes
time (evaluations, uploads) goes through one queue in order (`jobs.py`): a checkpoint is reported only after the
evaluations before it, so that a trainer that resumes from it has lost none of them. On SIGTERM nothing waits for them: what is
not done is stored beside the checkpoint (`unfinished.py`), and the next attempt does it first.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Never

import structlog
from dressage.api.internal.v1 import run_service_pb2 as pb
from dressage.api.v1 import session_pb2
from dressage.contracts import RewardError
from dressage.errors import DressageError, FailedPrecondition, NotFound, ResourceExhausted
from dressage.limits import CHECKPOINT_INDEX
from dressage.sandbox.limits import GIB, Limits
from dressage.sandbox.pipe import ChannelClosed, ProtocolError
from dressage.sandbox.process import Exit, SandboxProcess

from dressage_trainer import messages, unfinished
from dressage_trainer.compiled import CompiledCache, Filling, key_of, request_of
from dressage_trainer.delivery import Delivery, StagedCheckpoint
from dressage_trainer.evaluation import EvaluationSettings, EvaluatorPool, stopped_by
from dressage_trainer.jobs import Jobs
from dressage_trainer.leaving import told_to_leave
from dressage_trainer.outcome import Outcome
from dressage_trainer.specs import options_of, train_spec
from dressage_trainer.threads import learner_environment
from dressage_trainer.uploads import get_file
from dressage_trainer.waiting import first_of
from dressage_trainer.work import WorkStream

_LEARNER_LIMITS = Limits(memory_bytes=8 * GIB, file_bytes=2 * GIB, scratch_bytes=8 * GIB)
"""The folder has room for three of the largest checkpoints: two that are kept and one that is being written."""
_LEARNER = "dressage_trainer.learner:learn"
_RESUME = "resume-{}.safetensors"
_SNAPSHOT_SECONDS = 25.0
_ACCEPT_SECONDS = 5.0
_LAST_JOBS_SECONDS = 8.0
"""What the last evaluations and uploads get when told to leave."""
_FILL_SECONDS = 15.0


@dataclass(frozen=True)
class TrainingContext:
    """What a training needs from the supervisor.

    :param terminate: set on SIGTERM.
    """

    work: WorkStream
    scratch: Path
    terminate: asyncio.Event
    allow_unsandboxed: bool = False
    compiled: CompiledCache | None = None
    """Compiled updates of earlier runs."""


class Training:
    """Runs one `TrainAssignment`."""

    def __init__(self, context: TrainingContext, assignment: pb.Assignment) -> None:
        self._context = context
        self._task = assignment.train
        self._members = [member.id for member in self._task.members]
        self._sandbox = context.scratch / "learner"
        self._delivery = Delivery(work=context.work, assignment=assignment.id, staging=context.scratch / "staging")
        self._jobs = Jobs(store=self._delivery.checkpoint, terminate=context.terminate)
        self._stopped = dict(self._task.stopped)
        """Why members were stopped, by id; also in earlier attempts."""
        self._known_to_learner: set[str] = set()
        """Those of them that the learner has told of."""
        self._none_left = False
        self._nobody = asyncio.Event()
        """All members were stopped, and the learner does not know of some (of those in evaluations, say): it would go on."""
        self._look_for_anybody()
        self._snapshot: tuple[StagedCheckpoint, list[messages.EvaluateMessage]] | None = None
        """What was asked for on SIGTERM: the last boundary's checkpoint, and evaluations of before that are not done."""
        self._snapshot_answered = asyncio.Event()
        """It is there, or will not come."""
        self._left_undone: list[messages.EvaluateMessage] = []
        """By the attempt before."""
        self._fill: Callable[[], bool] | None = None
        self._filling: asyncio.Future[bool] | None = None
        self._warm_up = Filling()
        self._log = structlog.get_logger("dressage.trainer.training")

    async def run(self) -> Outcome:
        """Trains, evaluates, uploads; returns how it ended."""
        if self._nobody.is_set():
            return self._nobody_left()
        self._sandbox.mkdir(parents=True, exist_ok=True)
        fetching = asyncio.ensure_future(self._fetch_checkpoints())
        if (left := await self._told_to_leave(fetching)) is not None:
            return left
        spec = train_spec(self._task, resume=fetching.result(), memory_bytes=_LEARNER_LIMITS.memory_bytes)
        settings = EvaluationSettings(
            environment=self._task.environment,
            options=options_of(self._task.options),
            reward_source=self._task.reward_source,
            seeds=tuple(range(self._task.evaluation_seed, self._task.evaluation_seed + self._task.evaluation_episodes)),
            allow_unsandboxed=self._context.allow_unsandboxed,
        )
        cores = max(1, self._task.cores)
        kept = self._compiled_updates(spec)
        learner = await asyncio.to_thread(self._start_learner, cores, kept)
        pool = EvaluatorPool(
            settings=settings, scratch=self._context.scratch, size=min(cores, len(self._members)), background=True
        )
        try:
            async with pool:
                await asyncio.to_thread(learner.channel.send, spec.to_dict())
                return await self._serve(learner, pool)
        except ResourceExhausted as error:  # episodes too long to score: another attempt would record the same
            return Outcome.failed(error.reason, error.message, generated_code=False)
        finally:
            await asyncio.to_thread(learner.kill)
            learner.channel.close()
            if self._filling is not None:
                await self._filled_or_told_to_leave(self._filling)

    async def _filled_or_told_to_leave(self, filling: asyncio.Future[bool]) -> None:
        await first_of(filling, self._context.terminate, self._context.work.stopped, timeout=_FILL_SECONDS)
        if not filling.done():
            await asyncio.to_thread(self._warm_up.give_up)
            await filling

    def _compiled_updates(self, spec: messages.TrainSpec) -> Path | None:
        """The folder of updates that were compiled for such shapes; else it is noted what to compile at the end."""
        cache = self._context.compiled
        if cache is None or spec.backend != "jax":
            return None
        request = request_of(spec)
        key = key_of(request)
        found = cache.find(key)
        if found is None:
            scratch, allow = self._context.scratch / "warmup", self._context.allow_unsandboxed
            self._fill = functools.partial(
                cache.fill, key, request, scratch=scratch, filling=self._warm_up, allow_unsandboxed=allow
            )
        return found

    def _start_learner(self, cores: int, compiled: Path | None) -> SandboxProcess:
        return SandboxProcess.start(
            _LEARNER,
            limits=_LEARNER_LIMITS,
            scratch=self._sandbox,
            threads=cores,
            env=learner_environment(compilation_cache=compiled),
            read_only=[] if compiled is None else [compiled],
            allow_unsandboxed=self._context.allow_unsandboxed,
        )

    async def _fetch_checkpoints(self) -> list[str]:
        """Brings the checkpoint to go on from and the one before it, which hold the metrics too, into the learner's folder.

        :returns: paths relative to that folder, the newest first.
        """
        if not self._task.checkpoint:
            return []
        work, found = self._context.work, []
        for number, key in enumerate(await self._stored_checkpoints()):
            path = _RESUME.format(number)
            try:
                await get_file(work, key, self._sandbox / path)
            except NotFound:
                self._log.warning("a checkpoint is missing", key=key)
                continue
            found.append(path)
        if _RESUME.format(0) in found:
            self._left_undone = await self._fetch_evaluations()
        if not found:
            message = f"{self._task.checkpoint} and those before it are missing; training begins anew"
            warning = pb.WarningReport(reason="CHECKPOINT_MISSING", message=message)
            self._delivery.report(pb.Report(warning=warning))
        return found

    async def _fetch_evaluations(self) -> list[messages.EvaluateMessage]:
        """Those that the attempt before left undone as it stored the checkpoint to go on from."""
        key, path = unfinished.key_beside(self._task.checkpoint), self._context.scratch / "unfinished"
        try:
            await get_file(self._context.work, key, path)
            return await asyncio.to_thread(unfinished.read, path)
        except NotFound:
            return []
        except ProtocolError as error:
            self._log.warning("evaluations that were left undone cannot be read", key=key, error=error.message)
            return []

    async def _stored_checkpoints(self) -> list[str]:
        """Keys of the checkpoint to go on from and of the one before it."""
        newest = self._task.checkpoint
        path = self._context.scratch / "index.json"
        try:
            await get_file(self._context.work, CHECKPOINT_INDEX, path)
            listed = [str(key) for key in json.loads(path.read_text())]
        except (NotFound, ValueError, TypeError):
            return [newest]
        # The index may be ahead of the last report that was accepted.
        earlier = listed[listed.index(newest) + 1 :] if newest in listed else []
        self._delivery.continue_from([newest, *earlier])
        return [newest, *earlier[:1]]

    async def _serve(self, learner: SandboxProcess, pool: EvaluatorPool) -> Outcome:
        """Serves the learner until it is done, fails, or is told to stop."""
        listener = asyncio.ensure_future(self._listen(learner, pool))
        worker = asyncio.ensure_future(self._jobs.work_off())
        work, terminate = self._context.work, self._context.terminate
        try:
            await first_of(listener, worker, work.stopped, terminate, self._nobody)
            if worker.done():
                worker.result()  # raises: the worker ends by an error only
            if listener.done():
                return await self._ended(listener.result(), worker)
            if work.stopped.is_set():
                return Outcome.stopped(work.stop_reason)
            if self._nobody.is_set():
                return await self._leave_records(learner)
            if await self._checkpoint(learner, worker, listener):
                return Outcome.interrupted()
            outcome = await self._ended(listener.result(), worker)
            return outcome if outcome.done or outcome.report else Outcome.interrupted()
        finally:
            listener.cancel()
            worker.cancel()
            await asyncio.gather(listener, worker, return_exceptions=True)
            await self._jobs.close()

    async def _ended(self, outcome: Outcome, worker: asyncio.Future[Never]) -> Outcome:
        """The learner has said its last: evaluates and stores what is left, as far as there is time."""
        left = await self._told_to_leave(asyncio.ensure_future(self._jobs.finish(worker)))
        if not outcome.done:
            return outcome
        if left is not None:  # the last checkpoint serves another attempt
            return left
        if self._none_left:
            return self._nobody_left()
        self._delivery.report(pb.Report(done=pb.AssignmentDone(env_steps=outcome.env_steps)))
        return outcome

    async def _told_to_leave(self, task: asyncio.Future[Any]) -> Outcome | None:
        work, terminate = self._context.work, self._context.terminate
        left = await told_to_leave(task, work=work, terminate=terminate, finish_seconds=_LAST_JOBS_SECONDS)
        if left is None:
            task.result()  # raises: another end than told
        return left

    async def _leave_records(self, learner: SandboxProcess) -> Outcome:
        """Nobody is left to train: what is known of the members is stored, if that can be."""
        await asyncio.to_thread(learner.kill)
        try:
            async with asyncio.timeout(_SNAPSHOT_SECONDS):
                await self._store_records()
        except (TimeoutError, DressageError) as error:
            self._log.warning("the members' metrics are not stored to their end", error=str(error))
        return self._nobody_left()

    async def _checkpoint(
        self, learner: SandboxProcess, worker: asyncio.Future[Never], listener: asyncio.Future[Outcome]
    ) -> bool:
        """SIGTERM: stores the snapshot of the last update boundary; false if the learner has ended instead."""
        try:
            async with asyncio.timeout(_SNAPSHOT_SECONDS):
                with contextlib.suppress(ChannelClosed):  # it has ended, and what it said last is still to be heard
                    await asyncio.to_thread(learner.channel.send, {"type": "snapshot"})
                await first_of(self._snapshot_answered, listener)
                if not self._snapshot_answered.is_set():
                    return False
                # What it would learn from here on is lost.
                await asyncio.to_thread(learner.kill)
                if self._snapshot is not None:
                    await self._store_snapshot(*self._snapshot, worker)
        except (OSError, DressageError) as error:  # TimeoutError is an OSError, as is a full disk
            self._log.warning("no checkpoint before the end; an earlier one serves", error=str(error))
        return True

    async def _store_snapshot(
        self, staged: StagedCheckpoint, undone: list[messages.EvaluateMessage], worker: asyncio.Future[Never]
    ) -> None:
        await self._jobs.leave(worker)
        await self._delivery.checkpoint(staged, undone)
        await self._context.work.drain(_ACCEPT_SECONDS)

    async def _listen(self, learner: SandboxProcess, pool: EvaluatorPool) -> Outcome:
        """Takes the learner's messages until the last one, after what the attempt before left undone."""
        for evaluation in self._left_undone:
            self._check_members(evaluation)
            await self._handle(evaluation, pool)
        while True:
            try:
                raw = await asyncio.to_thread(learner.channel.recv, timeout=None)
            except ChannelClosed:
                ended = await asyncio.to_thread(learner.wait, 10.0)
                return _died(ended, self._task.algorithm)
            message = messages.parse(raw)
            self._check_members(message)
            outcome = await self._handle(message, pool)
            if outcome is not None:
                return outcome

    def _check_members(self, message: messages.LearnerMessage) -> None:
        """Refuses a message about members that are not this run's: their ids become paths and keys.

        :raises ProtocolError: if it names another.
        """
        strangers = sorted(messages.members_of(message) - set(self._members))
        if strangers:
            raise ProtocolError(
                f"the learner sent a message of type {message.type!r} about {strangers[0][:40]!r}, no member of its run"
            )

    async def _handle(self, message: messages.LearnerMessage, pool: EvaluatorPool) -> Outcome | None:
        match message:
            case messages.ProgressMessage():
                self._delivery.report(pb.Report(progress=_progress(message)))
            case messages.WarningMessage():
                warning = pb.WarningReport(reason=message.reason, message=message.message, member=message.member)
                self._delivery.report(pb.Report(warning=warning))
                if message.reason in ("CHECKPOINT_UNAVAILABLE", "CHECKPOINT_FAILED"):
                    self._no_snapshot()
            case messages.MemberStoppedMessage():
                self._stop(message)
            case messages.CheckpointMessage():
                await self._take_checkpoint(message)
            case messages.EvaluateMessage():
                await self._jobs.put_evaluation(message, lambda: self._evaluate(pool, message.policies, final=False))
            case messages.DoneMessage():
                await self._jobs.put_last(lambda: self._evaluate(pool, message.policies, final=True))
                if self._fill is not None:
                    self._filling = asyncio.ensure_future(asyncio.to_thread(self._fill))
                return Outcome.finished(message.env_steps_total)
            case messages.FailedMessage():
                return Outcome.failed(message.reason, message.message, generated_code=message.generated_code)
        return None

    def _stop(self, message: messages.MemberStoppedMessage, *, in_evaluation: bool = False) -> None:
        if message.member not in self._stopped:  # else it was told before, by an earlier attempt
            self._stopped[message.member] = session_pb2.Failure(reason=message.reason, message=message.message)
            self._delivery.stopped(message)
        # Of one that an evaluation stopped before, the learner knows another cause.
        if not in_evaluation and self._stopped[message.member].reason == message.reason:
            self._known_to_learner.add(message.member)
        self._look_for_anybody()

    def _look_for_anybody(self) -> None:
        # Where the learner knows of all, its own last message says more.
        if self._stopped.keys() >= set(self._members) and self._stopped.keys() - self._known_to_learner:
            self._nobody.set()

    def _nobody_left(self) -> Outcome:
        return Outcome.none_left([self._stopped[member] for member in self._members if member in self._stopped])

    async def _take_checkpoint(self, message: messages.CheckpointMessage) -> None:
        try:
            limit, stage = _LEARNER_LIMITS.file_bytes, self._delivery.stage_checkpoint
            staged = await asyncio.to_thread(stage, message, self._members, self._sandbox, max_bytes=limit)
        except NotFound:
            return  # the learner has made room for a newer one already
        except FailedPrecondition as error:  # training is worth more than a place to go on from
            warning = pb.WarningReport(reason="CHECKPOINT_FAILED", message=f"update {message.update}: {error.message}")
            self._delivery.report(pb.Report(warning=warning))
            self._no_snapshot()
            return
        # A sandboxed process may say so at any time; it counts once, and when it was asked.
        if message.requested and self._context.terminate.is_set() and self._snapshot is None:
            self._snapshot = staged, self._jobs.unfinished()
            self._snapshot_answered.set()
        else:
            await self._jobs.put_checkpoint(staged)

    def _no_snapshot(self) -> None:
        """Whoever waits for a snapshot waits in vain: leave with the last one stored."""
        if self._context.terminate.is_set():
            self._snapshot_answered.set()

    async def _evaluate(self, pool: EvaluatorPool, policies: tuple[messages.MemberPolicy, ...], *, final: bool) -> None:
        """Evaluates policies at once, as far as there are evaluators; the last time their bundles are delivered too."""

        async def one(policy: messages.MemberPolicy) -> None:
            try:
                episodes = await pool.evaluate(policy)
            except RewardError as error:
                self._stop(stopped_by(error, policy), in_evaluation=True)
                return
            await self._delivery.evaluation(policy.member, policy.env_step, episodes)
            if final:
                member = await self._delivery.policy(policy)
                self._delivery.report(pb.Report(member=member))

        if final:
            await pool.foreground()
        # The learner does not know of those that an evaluation stopped, and goes on training them.
        policies = tuple(policy for policy in policies if policy.member not in self._stopped)
        try:
            async with asyncio.TaskGroup() as group:
                for policy in policies:
                    group.create_task(one(policy))
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from errors
        if final:
            self._none_left = self._stopped.keys() >= set(self._members)
            await self._store_records()

    async def _store_records(self) -> None:
        records = await asyncio.to_thread(self._delivery.stage_records, self._members, self._sandbox)
        await self._delivery.records(records)


def _progress(message: messages.ProgressMessage) -> pb.ProgressReport:
    report = pb.ProgressReport(steps_per_second=message.steps_per_second, activity=message.activity)
    for member in message.members:
        report.members.add(member=member.member, env_step=member.env_step, metrics=member.metrics)
    return report


def _died(ended: Exit | None, algorithm: str = "") -> Outcome:
    """What a learner's end without a last message means."""
    if ended is None:
        return Outcome.crashed("the learner closed its channel and went on running")
    detail = {"tail": ended.stderr_tail[-4000:]} if ended.stderr_tail else {}
    if ended.kind == "memory":
        message, replays = f"the learner was ended: {ended.reason}", algorithm == "sac"
        if replays:  # no reward's doing
            message += (
                "; SAC's replay buffers and their copies for checkpoints take most of it: train fewer members or steps"
            )
        return Outcome.failed("LEARNER_OUT_OF_MEMORY", message, generated_code=not replays)
    if ended.bound:
        return Outcome.failed("SANDBOX_LIMIT", f"the learner was ended: {ended.reason}", generated_code=True, **detail)
    return Outcome.crashed(f"the learner ended: {ended.reason}", **detail)
