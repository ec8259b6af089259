"""Serve an `EvaluateAssignment`: each candidate plays all seeds on stock Gymnasium; each result is an item.

A candidate that cannot be played fails alone, with the cause in its result. Results that an earlier attempt reported are
skipped. Episodes depend on policy and seed only, so results do not depend on how seeds are spread over players.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dressage.api.internal.v1 import run_service_pb2 as pb
from dressage.api.v1 import session_pb2
from dressage.artifacts.keys import check_key
from dressage.errors import DressageError, InvalidArgument, NotFound, ResourceExhausted
from dressage.policies import CARD_FILE, WEIGHTS_FILE, load

from dressage_trainer.assignments.context import (
    AssignmentContext,
    assignment_refused,
    first_of,
    infrastructure_failed,
)
from dressage_trainer.assignments.requests import Evaluation, check_bundle, evaluation_of, parameters_of
from dressage_trainer.assignments.step_rate import StepRate
from dressage_trainer.evaluation.player_pool import Played, PlayerPool, parts
from dressage_trainer.lease.files import get_file, put_files

_STEPS_AT_ONCE = 50_000
"""Environment steps of one request to a player, at most, unless a single episode has more."""
_PROGRESS_SECONDS = 5.0


async def evaluate(context: AssignmentContext) -> pb.AssignmentResult | None:
    """Serve the assignment; None if it was interrupted."""
    try:
        evaluation = evaluation_of(context.assignment.evaluate)
    except InvalidArgument as error:
        return assignment_refused(error.reason, error.message)
    pool = context.players or PlayerPool(context.sandboxes)
    work = _Serving(context, evaluation, pool)
    serving = asyncio.ensure_future(work.run())
    try:
        while not serving.done():
            await first_of(serving, context.terminate, context.cancelled, timeout=_PROGRESS_SECONDS)
            if not serving.done() and (context.terminate.is_set() or context.cancelled.is_set()):
                return None
            if not serving.done():
                context.report("", progress=pb.ProgressReport(activity="evaluating", steps_per_second=work.rate()))
        return pb.AssignmentResult(evaluate=serving.result())
    except ResourceExhausted as error:  # another attempt would need as much
        return assignment_refused(error.reason, error.message)
    except DressageError as error:
        return infrastructure_failed(error.reason, error.message)
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


class _Serving:
    """One assignment in progress."""

    def __init__(self, context: AssignmentContext, evaluation: Evaluation, pool: PlayerPool) -> None:
        self._context = context
        self._evaluation = evaluation
        self._pool = pool
        cores = max(1, context.assignment.cores)
        self._slots = asyncio.Semaphore(cores)
        self._result = pb.EvaluateResult()
        candidates, seeds = len(context.assignment.evaluate.candidates), len(evaluation.seeds)
        # Few candidates leave cores idle unless their seeds are spread.
        spread = -(-seeds // max(1, cores // candidates))
        self._rate = StepRate()
        self._part = max(1, min(spread, _STEPS_AT_ONCE // evaluation.task.longest_episode))

    def rate(self) -> float:
        """Return environment steps per second since the last call."""
        return self._rate.at(self._result.env_steps)

    async def run(self) -> pb.EvaluateResult:
        """Evaluate all candidates that no earlier attempt reported.

        :raises DressageError: for a failure that no candidate caused.
        """
        todo = [
            (index, candidate)
            for index, candidate in enumerate(self._context.assignment.evaluate.candidates)
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
            await self._upload(message, played)
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
                return _Playable(candidate.id, {"policy": spec.to_dict(), "parameters": vector})
            case "bundle":
                return _Playable(candidate.id, await self._bundle(index, candidate))
            case ("code" | "program") as proposal:
                size = len(getattr(candidate, proposal))
                raise InvalidArgument(
                    field=f"candidates[{index}].{proposal}",
                    value=f"{size} characters of {proposal}",
                    expected=f"a bundle or parameters: this trainer does not evaluate {proposal} yet",
                    reason="CANDIDATE_UNSUPPORTED",
                )
            case other:
                expected = "a proposal: a bundle or parameters"
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

    async def _play(self, playable: _Playable) -> Played:
        """Play all episodes of a candidate; they are in the order of the seeds."""
        evaluation = self._evaluation

        async def one(start: int, seeds: tuple[int, ...]) -> Played:
            async with self._slots, self._pool.borrow(evaluation.task.card.id) as player:
                request = {
                    "environment": evaluation.task.card.id,
                    "options": evaluation.task.options,
                    "seeds": list(seeds),
                    "recorded": min(max(0, evaluation.kept_rollouts - start), len(seeds)),
                    **playable.policy,
                }
                target = self._context.scratch / "rollouts" / playable.id / str(start)
                played = await player.play(request, target=target)
            self._result.episodes += len(played.returns)
            self._result.env_steps += sum(played.lengths)
            return played

        split = parts(evaluation.seeds, size=self._part)
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(one(start, tuple(seeds))) for start, seeds in split]
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from errors
        played = [task.result() for task in tasks]
        return Played(
            returns=tuple(value for part in played for value in part.returns),
            lengths=tuple(value for part in played for value in part.lengths),
            successes=tuple(value for part in played for value in part.successes),
            rollouts=tuple(path for part in played for path in part.rollouts),
        )

    async def _upload(self, message: session_pb2.CandidateResult, played: Played) -> None:
        """Store the kept rollouts and add them to the result."""
        files: dict[str, Path] = {}
        for seed, path, value in zip(self._evaluation.seeds, played.rollouts, played.returns, strict=False):
            key = f"candidates/{message.id}/rollouts/{seed}.npz"
            files[key] = path
            message.rollouts.add(artifact=key, seed=seed, proposed_return=value, **{"return": value})
        if files:
            await put_files(self._context, files)
            shutil.rmtree(self._context.scratch / "rollouts" / message.id, ignore_errors=True)


def _item(candidate: str) -> str:
    return f"candidate/{candidate}"
