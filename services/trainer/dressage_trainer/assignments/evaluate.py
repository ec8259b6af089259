"""Serve an `EvaluateAssignment`: each candidate plays all seeds; each result is an item.

Candidates play on stock Gymnasium, programs in their engine. With ``batched`` the episodes of parameters are played by the
batched engine, which is faster and gives the same episodes; rollouts to keep are recorded on stock Gymnasium.

A candidate that cannot be played fails alone, with the cause in its result. Results that an earlier attempt reported are
skipped. Episodes depend on policy and seed only, so results do not depend on how seeds are spread over players.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from dressage.api.internal.v1 import run_service_pb2 as pb
from dressage.api.v1 import session_pb2
from dressage.artifacts.store import check_key
from dressage.errors import DressageError, FailedPrecondition, InvalidArgument, NotFound, ResourceExhausted
from dressage.policies import CARD_FILE, WEIGHTS_FILE, load
from dressage.programs.families import ProgramTask, has_programs

from dressage_trainer.assignments.candidate_files import store_bundle, store_program, store_rollouts
from dressage_trainer.assignments.code_candidates import CodeCandidates
from dressage_trainer.assignments.context import (
    AssignmentContext,
    StepRate,
    assignment_refused,
    first_of,
    infrastructure_failed,
)
from dressage_trainer.assignments.requests import (
    Evaluation,
    check_bundle,
    evaluation_of,
    parameters_of,
    program_evaluation,
    program_text,
)
from dressage_trainer.evaluation.player_pool import PlayedEpisodes, PlayerPool, parts
from dressage_trainer.lease.files import get_file

_STEPS_AT_ONCE = 50_000
"""Environment steps of one request to a player, at most, unless a single episode has more."""
_PROGRESS_SECONDS = 5.0


async def evaluate(context: AssignmentContext) -> pb.AssignmentResult | None:
    """Serve the assignment; None if it was interrupted."""
    try:
        evaluation = evaluation_of(context.assignment.evaluate)
        pool = context.players or PlayerPool(context.sandboxes)
        work = _Serving(context, evaluation, pool)
    except InvalidArgument as error:
        return assignment_refused(error.reason, error.message)
    serving = asyncio.ensure_future(work.run())
    try:
        while not serving.done():
            await first_of(serving, context.terminate, context.cancelled, timeout=_PROGRESS_SECONDS)
            if not serving.done() and (context.terminate.is_set() or context.cancelled.is_set()):
                return None
            if not serving.done():
                context.report("", progress=pb.ProgressReport(activity="evaluating", steps_per_second=work.rate()))
        return pb.AssignmentResult(evaluate=serving.result())
    except (FailedPrecondition, ResourceExhausted) as error:  # another attempt would fail in the same way
        return assignment_refused(error.reason, error.message, remedy=error.metadata.get("remedy", ""))
    except DressageError as error:
        return infrastructure_failed(error.reason, error.message, remedy=error.metadata.get("remedy", ""))
    finally:
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)
        if context.players is None:
            await pool.close()


@dataclass(frozen=True)
class _Playable:
    """A candidate that can be played: its part of a player's request."""

    id: str
    policy: Mapping[str, Any]
    parameters: np.ndarray | None = None
    """(n,) of a small policy; None for a stored one."""
    program: str = ""
    """Text of a program."""


class _Serving:
    """One assignment in progress."""

    def __init__(self, context: AssignmentContext, evaluation: Evaluation, pool: PlayerPool) -> None:
        self._context = context
        self._evaluation, self._assignment = evaluation, context.assignment.evaluate
        self._pool = pool
        cores = max(1, context.assignment.cores)
        self._slots = asyncio.Semaphore(cores)
        self._result = pb.EvaluateResult()
        candidates, seeds = len(self._assignment.candidates), len(self._assignment.seeds)
        # Few candidates leave cores idle unless their seeds are spread.
        spread = -(-seeds // max(1, cores // candidates))
        self._rate = StepRate()
        self._code = _code_candidates(context, evaluation, pool, self._slots)
        self._part = max(1, min(spread, _STEPS_AT_ONCE // evaluation.task.longest_episode))
        self._program_task: ProgramTask | None = None
        programs = any(one.WhichOneof("proposal") == "program" for one in self._assignment.candidates)
        if programs and has_programs(evaluation.task.card.id):
            self._program_task = program_evaluation(self._assignment)
            self._part = spread

    def rate(self) -> float:
        """Return environment steps per second since the last call."""
        return self._rate.at(self._result.env_steps)

    async def run(self) -> pb.EvaluateResult:
        """Evaluate all candidates that no earlier attempt reported.

        :raises DressageError: for a failure that no candidate caused.
        """
        context = self._context
        proposals = {candidate.WhichOneof("proposal") for candidate in self._assignment.candidates}
        batched = self._assignment.batched
        if context.compiled is not None and (batched or proposals & {"code", "program"}):
            await asyncio.to_thread(context.compiled.prepare_kernels, self._evaluation.task.card.id)
        todo = [
            (index, candidate)
            for index, candidate in enumerate(self._assignment.candidates)
            if not self._context.finished(_item(candidate.id))
        ]
        pending = iter(todo)

        async def take() -> None:
            for index, candidate in pending:
                await self._one(index, candidate)

        try:
            async with asyncio.TaskGroup() as group:
                # As many at a time as there are cores: ten thousand candidates need no ten thousand tasks.
                for _ in range(min(len(todo), max(1, self._context.assignment.cores))):
                    group.create_task(take())
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from errors
        return self._result

    async def _one(self, index: int, candidate: pb.Candidate) -> None:
        message = session_pb2.CandidateResult(id=candidate.id)
        try:
            source = await self._code.source_of(index, candidate) if self._code else None
            if self._code and source is not None:
                episodes, steps = await self._code.evaluate(candidate.id, source, message)
                self._result.episodes += episodes
                self._result.env_steps += steps
                self._context.report(_item(candidate.id), candidate=message)
                return
            playable = await self._playable(index, candidate)
            played = await self._play(playable)
        except InvalidArgument as error:
            message.failure.reason, message.failure.message = error.reason, error.message
            if error.expected:
                message.failure.remedy = f"Give {error.expected}."
        else:
            message.returns.extend(played.returns)
            message.lengths.extend(played.lengths)
            message.successes.extend(played.successes)
            if playable.program and self._context.assignment.evaluate.trace:
                message.trace = await self._trace(playable, played)
            await self._store(message, playable, played)
        self._context.report(_item(candidate.id), candidate=message)

    async def _playable(self, index: int, candidate: pb.Candidate) -> _Playable:
        """Return the candidate in the form that players read.

        :raises InvalidArgument: if it cannot be played.
        """
        match candidate.WhichOneof("proposal"):
            case "parameters":
                spec = self._evaluation.policy
                assert spec is not None  # by `evaluation_of`
                vector = parameters_of(index, candidate.parameters.values, spec)
                return _Playable(candidate.id, {"policy": spec.to_dict(), "parameters": vector}, vector)
            case "bundle":
                return _Playable(candidate.id, await self._bundle(index, candidate))
            case "program":
                if self._program_task is None:
                    raise InvalidArgument(
                        field=f"candidates[{index}].program",
                        value=f"{len(candidate.program)} characters of program",
                        expected="a bundle, parameters or code: the environment has no programs",
                        reason="CANDIDATE_UNSUPPORTED",
                    )
                text = program_text(self._program_task, candidate.program, f"candidates[{index}].program")
                profile = self._program_task.profile
                return _Playable(candidate.id, {"program": text, "profile": profile, "trace": ""}, program=text)
            case other:
                expected = "a proposal: a bundle, parameters, code or a program"
                raise InvalidArgument(field=f"candidates[{index}]", value=other, expected=expected)

    async def _bundle(self, index: int, candidate: pb.Candidate) -> dict[str, Any]:
        """Download a stored policy."""
        field, key = f"candidates[{index}].bundle.bundle", candidate.bundle.bundle.rstrip("/")
        folder = self._context.scratch / "bundles" / candidate.id
        try:
            check_key(key)
            for name in (WEIGHTS_FILE, CARD_FILE):
                await get_file(self._context, f"{key}/{name}", folder / name)
            policy = load(folder)
        except (InvalidArgument, NotFound) as error:
            expected = "the key of a stored policy bundle"
            raise InvalidArgument(
                f"{field}: {error.message} (got {key!r}); expected {expected}.", field=field
            ) from error
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        check_bundle(index, policy.card, self._evaluation.task)
        return {"card": policy.card, "weights": policy.weights}

    async def _request(
        self, playable: _Playable, seeds: Sequence[int], *, recordings: int, folder: str
    ) -> PlayedEpisodes:
        """Play episodes of a candidate in one player.

        :param recordings: number of first episodes to record.
        :param folder: name of the folder of these recordings.
        """
        task = self._evaluation.task
        async with self._slots, self._pool.borrow(task.card.id) as player:
            request = {
                "environment": task.card.id,
                "options": task.options,
                "batched": self._context.assignment.evaluate.batched,
                "seeds": list(seeds),
                "recorded": recordings,
                **playable.policy,
            }
            return await player.play(request, target=self._context.scratch / "rollouts" / playable.id / folder)

    async def _play(self, playable: _Playable) -> PlayedEpisodes:
        """Play all episodes of a candidate; they are in the order of the seeds."""

        async def one(start: int, seeds: tuple[int, ...]) -> PlayedEpisodes:
            recordings = min(max(0, self._assignment.kept_rollouts - start), len(seeds))
            played = await self._request(playable, seeds, recordings=recordings, folder=str(start))
            self._result.episodes += len(played.returns)
            self._result.env_steps += sum(played.lengths)
            return played

        split = parts(self._assignment.seeds, size=self._part)
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(one(start, tuple(seeds))) for start, seeds in split]
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from errors
        played = [task.result() for task in tasks]
        return PlayedEpisodes(
            returns=tuple(value for part in played for value in part.returns),
            lengths=tuple(value for part in played for value in part.lengths),
            successes=tuple(value for part in played for value in part.successes),
            rollouts=tuple(path for part in played for path in part.rollouts),
        )

    async def _trace(self, playable: _Playable, played: PlayedEpisodes) -> str:
        """Return the episode of a program with the lowest return as text."""
        worst = int(np.argmin(played.returns))
        traced = replace(playable, policy={**playable.policy, "trace": self._assignment.trace})
        seeds = [self._assignment.seeds[worst]]
        return (await self._request(traced, seeds, recordings=0, folder="trace")).trace

    async def _store(self, message: session_pb2.CandidateResult, playable: _Playable, played: PlayedEpisodes) -> None:
        """Store the kept rollouts and the policy, and add them to the result."""
        evaluation, assignment = self._evaluation, self._assignment

        async def record(index: int) -> PlayedEpisodes:
            return await self._request(playable, [assignment.seeds[index]], recordings=1, folder=f"kept-{index}")

        await store_rollouts(self._context, message, played, record=record)
        if assignment.bundles and playable.program and self._program_task is not None:
            message.policy = await store_program(
                self._context,
                playable.id,
                playable.program,
                task=self._program_task,
                states=assignment.seeds,
                provenance=assignment.provenance,
            )
        if assignment.bundles and playable.parameters is not None and evaluation.policy is not None:
            message.policy = await store_bundle(
                self._context,
                playable.id,
                evaluation.policy,
                playable.parameters,
                task=evaluation.task,
                provenance=assignment.provenance,
            )


def _code_candidates(
    context: AssignmentContext, evaluation: Evaluation, pool: PlayerPool, slots: asyncio.Semaphore
) -> CodeCandidates | None:
    """Return what evaluates code; None if no candidate can be code."""
    proposals = {candidate.WhichOneof("proposal") for candidate in context.assignment.evaluate.candidates}
    return CodeCandidates(context, evaluation, pool, slots) if proposals & {"code", "bundle"} else None


def _item(candidate: str) -> str:
    return f"candidate/{candidate}"
