"""Serve a `TrainAssignment`: a learner in the sandbox, with evaluations and uploads at the same time.

Four tasks run. The listener handles the learner's messages at once, so that live progress never waits. The outbox uploads
policies at their marks and checkpoints, in an order from which another attempt can resume. The evaluation queue evaluates
uploaded policies. The fourth waits for the first of the others to end, or for the order to stop. On SIGTERM it stores the
checkpoint of the last update boundary and waits for no evaluation: the next attempt finds their policies in the store. The
orchestrator may end a training early, with policies of a mark. The learner is then killed, and these policies are evaluated
and delivered as a finished training's are. Another attempt does the same, without a learner.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import math
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import structlog
from dressage.api.internal.v1 import run_service_pb2 as pb
from dressage.api.v1 import session_pb2
from dressage.contracts import RewardError
from dressage.envs.cards import load_card
from dressage.envs.packs.registry import PACKS
from dressage.errors import DressageError, FailedPrecondition, InvalidArgument, NotFound, ResourceExhausted
from dressage.policies import PolicyCard
from dressage.sandbox.limits import LEARNER_LIMITS
from dressage.sandbox.pipe import ChannelClosed, ProtocolError
from dressage.sandbox.process import SandboxProcess

from dressage_trainer import messages
from dressage_trainer.assignments.context import (
    AssignmentContext,
    UntrustedInput,
    all_members_stopped,
    assignment_refused,
    blame_sender,
    first_of,
    generated_code_failed,
)
from dressage_trainer.assignments.delivery import (
    Delivery,
    bundle_prefix,
    episode_seeds,
    evaluation_item,
    final_item,
    member_item,
    policy_item,
)
from dressage_trainer.assignments.learner_process import (
    LEARNER,
    SIMULATE,
    SIMULATOR,
    end_simulator,
    exit_result,
    failure_result,
    fetch_checkpoints,
    fetch_starts,
    is_cached,
    progress_report,
    sandbox_of,
    warp_kernels,
)
from dressage_trainer.assignments.queues import EvaluationQueue, Outbox
from dressage_trainer.assignments.requests import options_of, train_spec
from dressage_trainer.evaluation.evaluator_pool import EvaluationSettings, EvaluatorPool, evaluator_of, stopped_by
from dressage_trainer.lease.compiled import Code, place_warp_kernels, updates_of
from dressage_trainer.lease.sandboxes import SandboxSpec, of_pack

_SNAPSHOT_SECONDS = 25.0
_PROGRESS_SECONDS = 0.1  # between two reports of progress; the learner sends one every half second
_LAST_SECONDS = 2.0
"""Time for the last evaluations when the trainer has to stop."""
_MAX_SPARE_EVALUATORS = 4


async def train(context: AssignmentContext) -> pb.AssignmentResult | None:
    """Run a `TrainAssignment`; None if it was interrupted or cancelled."""
    return await Training(context).run()


class Training:
    """One `TrainAssignment`, from its start to its result."""

    def __init__(self, context: AssignmentContext) -> None:
        self._context = context
        self._task = task = context.assignment.train
        self._members = [member.id for member in task.members]
        self._cores = max(1, context.assignment.cores)
        self._delivery = Delivery(context)
        self._outbox = Outbox(self._delivery.checkpoint)
        settings = EvaluationSettings(
            environment=task.environment,
            options=options_of(task.options),
            reward_source=task.reward_source,
            allow_unsandboxed=context.allow_unsandboxed,
        )
        pack = bool(load_card(task.environment).pack)
        # A pack's simulator takes so long to start that a second one, or one that yields the processors, delays the end.
        size = 1 if pack else min(self._cores, len(self._members) * max(1, task.evaluation_episodes))
        self._spare_evaluators = min(size, _MAX_SPARE_EVALUATORS)
        self._pool = EvaluatorPool(
            settings=settings, sandboxes=context.sandboxes, scratch=context.scratch, size=size, background=not pack
        )
        self._evaluations = EvaluationQueue(self._evaluate, workers=size + 1)
        self._stopped = dict(context.assignment.stopped)
        """Why members were stopped, by id; also in earlier attempts."""
        self._all_stopped = asyncio.Event()
        self._policies: set[tuple[str, int]] = set()
        """Member and step of the policies that are uploaded and evaluated, or will be."""
        self._starting: asyncio.Future[SandboxProcess] | None = None
        self._learner: SandboxProcess | None = None
        self._simulator: SandboxProcess | None = None
        self._learned = asyncio.Event()
        """The learner has sent its last message, or has ended."""
        self._next_progress, self._latest = 0.0, messages.ProgressMessage()
        self._snapshot_requested = False
        self._snapshot_answered = asyncio.Event()
        self._early_end = context.early_end
        self._early_end.request(context.assignment)
        self._grant = context.step_grant
        self._grant.raise_to(task.granted_steps)
        self._last_step = max(task.max_steps_per_member, task.steps_per_member)
        self._fill: Code | None = None
        """What to compile once the learner has ended; None if it is compiled already."""
        self._log = structlog.get_logger("dressage.trainer.training")

    async def run(self) -> pb.AssignmentResult | None:
        """Train, evaluate, upload; None if interrupted or cancelled."""
        self._note_if_all_stopped()
        if self._all_stopped.is_set():
            return await self._end_without_members()
        uploads = asyncio.ensure_future(self._outbox.run())
        evaluating = asyncio.ensure_future(self._evaluations.run())
        ending = self._early_end.requested.is_set()
        training = asyncio.ensure_future(self._end_early() if ending else self._train())
        tasks = [training, uploads, evaluating]
        context = self._context
        try:
            async with self._pool:
                try:
                    stops = [context.cancelled, context.terminate, self._all_stopped]
                    await first_of(*tasks, *stops, *([] if ending else [self._early_end.requested]))
                    if self._early_end.requested.is_set() and not ending and not any(task.done() for task in tasks):
                        ending = True
                        training.cancel()
                        await asyncio.gather(training, return_exceptions=True)
                        tasks[0] = training = asyncio.ensure_future(self._end_early())
                        await first_of(*tasks, *stops)
                    if context.cancelled.is_set():
                        return None
                    if self._all_stopped.is_set():
                        return await self._end_without_members()
                    if context.terminate.is_set() and not training.done():
                        return None if ending else await self._store_interrupted(training, uploads)
                    return next(task for task in tasks if task.done()).result()
                finally:
                    for task in tasks:
                        task.cancel()
                    await asyncio.gather(*tasks, return_exceptions=True)
        except UntrustedInput as error:
            return generated_code_failed(error.reason, error.message)
        except ResourceExhausted as error:  # episodes too long to score: another attempt would record the same
            return assignment_refused(error.reason, error.message)
        finally:
            if self._starting is not None:
                await asyncio.to_thread(context.sandboxes.end, await self._starting)
            if self._simulator is not None:
                await asyncio.to_thread(end_simulator, context, self._simulator)
            context.sandboxes.keep_ready("train", self._spares)

    async def _train(self) -> pb.AssignmentResult:
        """Learn, unless earlier attempts have the policies already; then wait for all evaluations and uploads."""
        ended = await self._queue_earlier_evaluations()
        env_steps = 0
        if not ended >= set(self._members):
            last = await self._learn()
            if isinstance(last, pb.AssignmentResult):
                return last
            env_steps = last.env_steps_total
        await self._pool.foreground()
        await self._outbox.flush()
        await self._evaluations.finish()
        return pb.AssignmentResult(train=pb.TrainResult(env_steps=env_steps))

    async def _end_early(self) -> pb.AssignmentResult:
        """End the learner, and evaluate and deliver the policies with which the training ends."""
        self._early_end.begun = True
        # Checkpoints after the mark are no part of the result (decision 0048).
        self._evaluations.clear()
        if self._starting is not None:
            learner = await self._starting
            await asyncio.to_thread(learner.kill)
            with blame_sender("the learner"):
                records = await asyncio.to_thread(self._delivery.stage_records, self._members, learner.scratch)
            self._outbox.put(lambda: self._delivery.records(records))
            self._compile_for_later()
        await self._pool.foreground()
        for member, step in self._early_end.final_steps.items():
            if not self._context.finished(member_item(member)):
                self._evaluations.put(pb.PolicyRef(member=member, env_step=step, bundle=bundle_prefix(member, step)))
        await self._outbox.flush()
        await self._evaluations.finish()
        return pb.AssignmentResult(train=pb.TrainResult())

    # -- results of earlier attempts

    async def _queue_earlier_evaluations(self) -> set[str]:
        """Queue the evaluations that earlier attempts did not finish.

        :returns: the members that need no learner any more.
        """
        ended = set(self._stopped) | {member for member in self._members if self._context.finished(member_item(member))}
        for reference in self._uploaded_before():
            if reference.member in ended:
                continue
            if self._is_final(reference):
                try:
                    await self._delivery.fetch_policy(reference)
                except NotFound:  # the learner creates it again
                    continue
                ended.add(reference.member)
            self._policies.add((reference.member, reference.env_step))
            self._evaluations.put(reference)
        return ended

    def _uploaded_before(self) -> list[pb.PolicyRef]:
        """Return policies that are not evaluated yet, and final policies of members that are not delivered yet."""
        references = {(ref.member, ref.env_step): ref for ref in self._context.assignment.pending_evaluations}
        for item in self._context.assignment.finished_items:
            kind, *rest = item.split("/")
            if kind == "policy" and len(rest) == 2:
                member, step = rest[0], int(rest[1])
                reference = pb.PolicyRef(member=member, env_step=step, bundle=bundle_prefix(member, step))
                if self._is_final(reference):
                    references.setdefault((member, step), reference)
        return list(references.values())

    def _is_final(self, reference: pb.PolicyRef) -> bool:
        """Whether the training ends with this policy."""
        if self._early_end.requested.is_set():
            return reference.env_step == self._early_end.final_steps.get(reference.member)
        return reference.env_step >= self._last_step

    # -- learning

    async def _learn(self) -> messages.DoneMessage | pb.AssignmentResult:
        """Run a learner to its last message; return a result if training failed."""
        context = self._context
        resume = await fetch_checkpoints(context, self._delivery)
        try:
            starts = await fetch_starts(context)  # also where it resumes: the checkpoint may be damaged
        except InvalidArgument as error:
            return assignment_refused("START_POLICY_UNSUITABLE", error.message)
        granted = self._grant.steps
        limits = context.sandboxes.fit(LEARNER_LIMITS)
        spec = train_spec(
            self._task,
            cores=self._cores,
            resume=[path.name for path in resume],
            memory_bytes=limits.memory_bytes,
            checkpoint_bytes=limits.file_bytes or 0,
            starts=starts,
            granted_steps=granted,
        )
        sandbox, compiled = sandbox_of(context, spec)
        pack = load_card(spec.environment).pack  # the updates of its environments are not compiled ahead
        self._fill = None if compiled or pack or not is_cached(spec) else updates_of(spec)
        kernels = await warp_kernels(context, spec)
        self._starting = asyncio.ensure_future(self._start_learner(sandbox, pack))
        # Shielded: a cancellation must not lose a process that a thread is starting.
        learner = self._learner = await asyncio.shield(self._starting)
        await asyncio.to_thread(place_warp_kernels, kernels, learner.scratch)
        for path in resume:
            path.rename(learner.scratch / path.name)
        await asyncio.to_thread(learner.channel.send, spec.to_dict())
        extending = asyncio.ensure_future(self._extend(learner, granted))
        try:
            last = await self._listen(learner)
        finally:
            extending.cancel()
        if isinstance(last, messages.DoneMessage):
            self._context.report("", progress=progress_report(self._latest))  # which may have come too soon
            with blame_sender("the learner"):
                records = await asyncio.to_thread(self._delivery.stage_records, self._members, learner.scratch)
                self._outbox.put(lambda: self._delivery.records(records))
                for policy in last.policies:
                    await self._take_policy(policy)
            self._compile_for_later()
        self._learned.set()
        return last

    async def _start_learner(self, sandbox: SandboxSpec, pack: str) -> SandboxProcess:
        """Start a learner and, for an environment of a pack, the process that simulates for it."""
        start = self._context.sandboxes.start
        if not pack:
            return await asyncio.to_thread(start, sandbox, LEARNER)
        simulator = of_pack(SIMULATOR, pack, with_gpu=PACKS[pack].batched)
        self._simulator = await asyncio.to_thread(start, simulator, SIMULATE)
        return await asyncio.to_thread(start, sandbox, LEARNER, companion=self._simulator.channel)

    async def _extend(self, learner: SandboxProcess, granted: int) -> None:
        """Send the learner each extension."""
        while granted:
            granted = await self._grant.beyond(granted)
            with contextlib.suppress(ChannelClosed):  # it has ended, and its last messages are not handled yet
                await asyncio.to_thread(learner.channel.send, messages.ExtendMessage(granted).to_dict())

    def _compile_for_later(self) -> None:
        """Compile the updates in the background for later trainings, if they are not compiled yet."""
        if self._fill is not None and self._context.fillings is not None:
            self._context.fillings.start(self._fill)
        self._fill = None

    def _spares(self) -> Mapping[SandboxSpec, int]:
        """Return the processes that another training like this one would start."""
        sandbox, _ = sandbox_of(self._context, train_spec(self._task, cores=self._cores))
        return {sandbox: 1, evaluator_of(self._task.environment): self._spare_evaluators}

    async def _listen(self, learner: SandboxProcess) -> messages.DoneMessage | pb.AssignmentResult:
        """Handle the learner's messages until the last one."""
        while True:
            try:
                with blame_sender("the learner"):
                    message = messages.parse(await asyncio.to_thread(learner.channel.recv, timeout=None))
                    self._check_members(message)
                    if isinstance(message, messages.DoneMessage | messages.FailedMessage):
                        return message if isinstance(message, messages.DoneMessage) else failure_result(message)
                    await self._handle(message, learner.scratch)
            except ChannelClosed:
                return exit_result(await asyncio.to_thread(learner.wait, 10.0), self._task.algorithm)

    def _check_members(self, message: messages.LearnerMessage) -> None:
        """Check that a message is about members of this training: their ids become paths and keys.

        :raises ProtocolError: if it names another.
        """
        unknown = sorted(messages.members_of(message) - set(self._members))
        if unknown:
            about = f"{message.type!r} about {unknown[0][:40]!r}"
            raise ProtocolError(f"the learner sent a message of type {about}, no member of its run")

    async def _handle(self, message: messages.LearnerMessage, sandbox: Path) -> None:
        match message:
            case messages.ProgressMessage():
                self._latest = message
                if (now := time.monotonic()) >= self._next_progress:  # it sends them as often as it likes
                    self._next_progress = now + _PROGRESS_SECONDS
                    self._context.report("", progress=progress_report(message))
            case messages.WarningMessage():
                self._delivery.warn(message)
                if message.reason in ("CHECKPOINT_UNAVAILABLE", "CHECKPOINT_FAILED"):
                    self._answer_snapshot()
            case messages.MemberStoppedMessage():
                self._stop(message)
            case messages.CheckpointMessage():
                await self._take_checkpoint(message, sandbox)
            case messages.EvaluateMessage():
                for policy in message.policies:
                    await self._take_policy(policy)

    async def _take_checkpoint(self, message: messages.CheckpointMessage, sandbox: Path) -> None:
        try:
            limit, stage = LEARNER_LIMITS.file_bytes, self._delivery.stage_checkpoint
            staged = await asyncio.to_thread(stage, message, self._members, sandbox, max_bytes=limit)
        except NotFound:
            return  # the learner has deleted it for a newer one already
        except FailedPrecondition as error:  # training is worth more than a checkpoint to resume from
            text = f"update {message.update}: {error.message}"
            self._delivery.warn(messages.WarningMessage("CHECKPOINT_FAILED", text))
            self._answer_snapshot()
            return
        self._outbox.put_checkpoint(staged)
        if message.requested:
            self._answer_snapshot()

    def _answer_snapshot(self) -> None:
        """Note that the snapshot is written or will not be. A sandboxed process may send either message at any time."""
        if self._snapshot_requested:
            self._snapshot_answered.set()

    async def _take_policy(self, policy: messages.MemberPolicy) -> None:
        """Upload and evaluate a policy, once. The learner may also send policies of members that an evaluation stopped.

        :raises ProtocolError: if the learner sends more policies than the assignment has evaluations.
        """
        key = (policy.member, policy.env_step)
        if policy.member in self._stopped or key in self._policies:
            return
        if len(self._policies) >= len(self._members) * (self._most_evaluations() + 1):
            raise ProtocolError("the learner sent more policies than there are evaluations")
        card = PolicyCard.from_dict(policy.card)
        expected = (self._task.environment, load_card(self._task.environment).observation_size)
        if (card.environment, card.observation_size) != expected:
            raise ProtocolError(f"the learner sent a policy of another environment ({card.environment[:40]!r})")
        self._policies.add(key)
        reference = await asyncio.to_thread(self._delivery.stage_policy, policy)
        self._outbox.put(functools.partial(self._send_policy, reference))

    def _most_evaluations(self) -> int:
        return math.ceil(max(1, self._task.evaluations) * self._last_step / max(1, self._task.steps_per_member))

    async def _send_policy(self, reference: pb.PolicyRef) -> None:
        if not self._context.finished(policy_item(reference)):
            await self._delivery.policy(reference)
        self._evaluations.put(reference)

    # -- evaluating

    async def _evaluate(self, reference: pb.PolicyRef) -> None:
        """Evaluate an uploaded policy; deliver it too if it is a member's final one."""
        context, delivery = self._context, self._delivery
        ending, final = self._early_end.requested.is_set(), self._is_final(reference)
        if reference.member in self._stopped or (ending and not final):
            return
        try:
            await delivery.fetch_policy(reference)
        except NotFound:
            text = f"the policy at environment step {reference.env_step} is missing in the store; it is not evaluated"
            delivery.warn(messages.WarningMessage("POLICY_MISSING", text, reference.member))
            return
        policy = await asyncio.to_thread(delivery.load_policy, reference)
        item = final_item(reference) if ending else evaluation_item(reference)
        if not context.finished(item):
            try:
                episodes = await self._pool.evaluate(policy, episode_seeds(self._task, reference.member, final=final))
            except RewardError as error:
                self._stop(stopped_by(error, policy))
                return
            await delivery.evaluation(reference, episodes, again=ending)
        if final and reference.member not in self._stopped and not context.finished(member_item(reference.member)):
            await delivery.member(reference)
        delivery.discard_policy(reference)

    def _stop(self, message: messages.MemberStoppedMessage) -> None:
        if message.member not in self._stopped:  # otherwise it was reported, perhaps by an earlier attempt
            self._stopped[message.member] = session_pb2.Failure(reason=message.reason, message=message.message)
            self._delivery.report_stopped(message)
        self._note_if_all_stopped()

    def _note_if_all_stopped(self) -> None:
        if self._stopped.keys() >= set(self._members):
            self._all_stopped.set()

    # -- ends

    async def _end_without_members(self) -> pb.AssignmentResult:
        """End with no member left to train; store the members' metrics if possible."""
        if self._learner is not None:
            await asyncio.to_thread(self._learner.kill)
            try:
                async with asyncio.timeout(_SNAPSHOT_SECONDS):
                    stage = self._delivery.stage_records
                    await self._delivery.records(await asyncio.to_thread(stage, self._members, self._learner.scratch))
            except (TimeoutError, DressageError) as error:
                self._log.warning("the members' metrics are not stored to their end", error=str(error))
        return all_members_stopped([self._stopped[member] for member in self._members])

    async def _store_interrupted(
        self, training: asyncio.Future[pb.AssignmentResult], uploads: asyncio.Future[Any]
    ) -> pb.AssignmentResult | None:
        """Store the snapshot of the last update boundary and the uploads that wait; do not wait for evaluations."""
        try:
            async with asyncio.timeout(_SNAPSHOT_SECONDS):
                if self._learner is not None:
                    await self._request_snapshot(self._learner, training, uploads)
                flushed = asyncio.ensure_future(self._outbox.flush())
                try:
                    await first_of(flushed, uploads)
                finally:
                    flushed.cancel()
                if uploads.done():
                    uploads.result()
        except (OSError, DressageError) as error:  # TimeoutError is an OSError, as is a full disk
            self._log.warning("no checkpoint was stored before the end; an earlier one will be used", error=str(error))
        if not self._learned.is_set():
            return None
        await first_of(training, self._context.cancelled, timeout=_LAST_SECONDS)
        if not training.done():
            return None
        result = training.result()
        crashed = result.failure.cause == pb.AssignmentFailure.CAUSE_INFRASTRUCTURE
        return None if crashed else result  # another attempt follows in any case

    async def _request_snapshot(self, learner: SandboxProcess, *others: asyncio.Future[Any]) -> None:
        """Have the learner write a checkpoint, unless it has ended; then end it, since later updates would be lost."""
        self._snapshot_requested = True
        with contextlib.suppress(ChannelClosed):  # it has ended, and its last messages are not handled yet
            await asyncio.to_thread(learner.channel.send, {"type": "snapshot"})
        await first_of(self._snapshot_answered, self._learned, *others)
        if not self._learned.is_set():
            await asyncio.to_thread(learner.kill)
