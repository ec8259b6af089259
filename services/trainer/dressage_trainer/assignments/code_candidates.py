"""Code candidates of an `EvaluateAssignment`: played by two processes each, then recorded, summarised and stored.

A candidate that breaks its contract or a limit fails alone, with the reason in its result.
"""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from dressage.api.internal.v1 import run_service_pb2 as pb
from dressage.api.v1 import session_pb2
from dressage.artifacts.store import check_key
from dressage.contracts.policy_host import FEEDBACK, PLAY, PolicyFailure, TimeBudget
from dressage.contracts.spaces import Spaces
from dressage.envs.packs.registry import PACKS
from dressage.errors import InvalidArgument, NotFound
from dressage.policies import CARD_FILE
from dressage.policies.code import CODE, SOURCE_FILE, CodePolicy, load_code

from dressage_trainer.assignments.candidate_files import FIRST, episodes_by_label
from dressage_trainer.assignments.context import AssignmentContext
from dressage_trainer.assignments.requests import Evaluation, Task, check_bundle, play_limits_of
from dressage_trainer.evaluation.code_player import (
    SANDBOX,
    CodeTask,
    GeneratedProcess,
    PlayedPart,
    play_part,
    replay,
    summarize,
)
from dressage_trainer.evaluation.player_pool import PlayerPool, parts
from dressage_trainer.lease.files import get_file, put_files

_STEPS_AT_ONCE = 200_000
"""Environment steps of the episodes that step together, at most, unless a single episode has more. One step of all of them
costs four messages, however many they are."""
_OBSERVED_BYTES = 160 << 20
"""Observations of the episodes that step together, at most: a policy may keep them, and has 1 GiB."""
_BATCHES = 8
"""Batches in lockstep that one process of a policy plays, at most: its start takes longer than a batch of short episodes."""
_LEAST_STEPS = 5_000
"""Fewer are not spread over two processes: their start would take longer."""
_MAX_KEPT_BYTES = 512 << 20
"""Actions and observations of a candidate's episodes, at most."""
_MAX_SPARES = 8
"""Spare processes that wait for the next candidates, at most."""


class CodeCandidates:
    """Evaluates the code candidates of one assignment.

    :param slots: bounds the parts that are played at a time.
    :raises InvalidArgument: for limits out of range, or episodes too long to record.
    """

    def __init__(
        self, context: AssignmentContext, evaluation: Evaluation, pool: PlayerPool, slots: asyncio.Semaphore
    ) -> None:
        self._context, self._evaluation, self._pool, self._slots = context, evaluation, pool, slots
        self._request = context.assignment.evaluate
        self._limits = play_limits_of(self._request.code_limits)
        self._spaces = Spaces.of(evaluation.task.card)
        self._records = bool(self._request.kept or self._request.kept_rollouts)
        self._check_size()
        steps = min(_STEPS_AT_ONCE, _OBSERVED_BYTES // (8 * self._spaces.observation_size))
        self._batch = max(1, steps // evaluation.task.longest_episode)
        self._part = self._part_size(max(1, context.assignment.cores))
        spares = min(self._processes(), _MAX_SPARES)  # the next round is most likely of the same size
        context.sandboxes.keep_ready("code", lambda: {SANDBOX: spares})

    def _check_size(self) -> None:
        """Check that what is kept of the episodes fits into memory."""
        card, steps = self._evaluation.task.card, len(self._request.seeds) * self._evaluation.task.longest_episode
        sizes = {
            "kept": 8 * card.action_size * self._records,
            "feedback_source": 8 * card.observation_size * bool(self._request.feedback_source),
        }
        for field, size in sizes.items():
            if size * steps > _MAX_KEPT_BYTES:
                expected = (
                    f"at most {_MAX_KEPT_BYTES // size} environment steps. Use fewer seeds or lower max_episode_steps."
                )
                raise InvalidArgument(field=field, value=f"{steps} steps", expected=expected)

    def _part_size(self, cores: int) -> int:
        """Return the episodes of one process: few candidates leave cores idle unless their seeds are spread."""
        task, seeds = self._evaluation.task, len(self._request.seeds)
        if task.card.pack and PACKS[task.card.pack].single:
            return 1
        spread = -(-seeds // max(1, cores // len(self._request.candidates)))
        least = -(-_LEAST_STEPS // task.longest_episode)
        return max(1, min(max(spread, least), _BATCHES * self._batch))

    def _processes(self) -> int:
        """Return the processes with generated code that the assignment needs."""
        parts_each = -(-len(self._request.seeds) // self._part)
        return len(self._request.candidates) * (parts_each + bool(self._request.feedback_source))

    async def source_of(self, index: int, candidate: pb.Candidate) -> str | None:
        """Return the source of a candidate; None if it is no code.

        :param index: the candidate's place in the assignment, for errors.
        :raises InvalidArgument: for a bundle of code that is damaged, or for other spaces.
        """
        if candidate.WhichOneof("proposal") == "code":
            return candidate.code
        if candidate.WhichOneof("proposal") != "bundle":
            return None
        field, key = f"candidates[{index}].bundle.bundle", candidate.bundle.bundle.rstrip("/")
        folder = self._context.scratch / "bundles" / candidate.id
        try:
            check_key(key)
            path = await get_file(self._context, f"{key}/{CARD_FILE}", folder / CARD_FILE)
            if not _is_code_card(path):
                return None
            await get_file(self._context, f"{key}/{SOURCE_FILE}", folder / SOURCE_FILE)
            policy = load_code(folder)
        except (InvalidArgument, NotFound) as error:
            expected = "the key of a stored policy bundle"
            message = f"{field}: {error.message} (got {key!r}); expected {expected}."
            raise InvalidArgument(message, field=field) from error
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        check_bundle(index, policy.card, self._evaluation.task)
        return policy.source

    async def evaluate(self, candidate: str, source: str, message: session_pb2.CandidateResult) -> tuple[int, int]:
        """Play a candidate and complete its result; a failure of the policy is part of it.

        :returns: episodes and environment steps.
        """
        task = CodeTask(
            source=source,
            environment=self._evaluation.task.card.id,
            options=self._evaluation.task.options,
            spaces=self._spaces,
            limits=self._limits,
            keep_actions=self._records,
            keep_observations=bool(self._request.feedback_source),
        )
        try:
            played = await self._play(task)
        except PolicyFailure as error:
            _set_failure(message.failure, error, subject="the policy")
            return 0, 0
        for part in played:
            message.returns.extend(part.returns)
            message.lengths.extend(part.lengths)
            message.successes.extend(part.successes)
        message.act_seconds = sum(part.act_seconds for part in played) / max(1, sum(part.acts for part in played))
        if self._records:
            await self._record(task, candidate, message, [rows for part in played for rows in part.actions])
        if self._request.feedback_source:
            await self._summarize(message, [rows for part in played for rows in part.observations])
        if self._request.bundles:
            await self._store(candidate, source, message)
        return len(message.returns), sum(message.lengths)

    async def _play(self, task: CodeTask) -> list[PlayedPart]:
        """Play all episodes; they are in the order of the seeds."""
        budget = TimeBudget(self._limits.candidate_seconds)

        async def one(start: int, seeds: Sequence[int]) -> PlayedPart:
            async with self._slots, self._pool.borrow(task.environment) as player:
                process = GeneratedProcess(self._context.sandboxes, PLAY)
                player.busy = True  # from now on: the thread may begin after this coroutine was cancelled
                try:
                    return await asyncio.to_thread(
                        play_part,
                        task,
                        seeds,
                        start=start,
                        budget=budget,
                        player=player,
                        process=process,
                        batch=self._batch,
                    )
                except asyncio.CancelledError:
                    process.stop()
                    raise
                except PolicyFailure as error:
                    seed = seeds[error.episode] if 0 <= error.episode < len(seeds) else None
                    raise error if seed is None else _OnSeed(error, seed) from error

        try:
            async with asyncio.TaskGroup() as group:
                split = parts(self._request.seeds, size=self._part)
                tasks = [group.create_task(one(start, seeds)) for start, seeds in split]
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from errors
        return [task.result() for task in tasks]

    async def _record(
        self, task: CodeTask, candidate: str, message: session_pb2.CandidateResult, actions: Sequence[np.ndarray]
    ) -> None:
        """Record the rollouts that are kept, store them, and add them to the result."""
        chosen = [(FIRST, index) for index in range(min(self._request.kept_rollouts, len(actions)))]
        chosen += episodes_by_label(self._request.kept, message.returns).items()
        files: dict[str, Path] = {}
        for index in dict.fromkeys(place for _, place in chosen):
            seed = self._request.seeds[index]
            target = self._context.scratch / "rollouts" / candidate / f"{seed}.npz"
            async with self._slots, self._pool.borrow(task.environment) as player:
                player.busy = True
                path, value = await asyncio.to_thread(replay, task, seed, actions[index], player=player, target=target)
            if path is None:
                continue
            key = f"candidates/{candidate}/rollouts/{seed}.npz"
            files[key] = path
            for label in [name for name, place in chosen if place == index]:
                message.rollouts.add(artifact=key, label=label, seed=seed, proposed_return=value, **{"return": value})
        await put_files(self._context, files)
        shutil.rmtree(self._context.scratch / "rollouts" / candidate, ignore_errors=True)

    async def _summarize(self, message: session_pb2.CandidateResult, observations: Sequence[np.ndarray]) -> None:
        process = GeneratedProcess(self._context.sandboxes, FEEDBACK)
        try:
            async with self._slots:
                texts = await asyncio.to_thread(
                    summarize,
                    self._request.feedback_source,
                    observations,
                    spaces=self._spaces,
                    limits=self._limits,
                    process=process,
                )
        except asyncio.CancelledError:
            process.stop()
            raise
        except PolicyFailure as error:
            _set_failure(message.feedback_failure, error, subject="the feedback class")
            message.feedback_failure.reason = error.reason.replace("POLICY_", "FEEDBACK_", 1)
        else:
            message.feedback.extend(texts)

    async def _store(self, candidate: str, source: str, message: session_pb2.CandidateResult) -> None:
        """Store the policy's bundle."""
        folder = self._context.scratch / "policies" / candidate
        policy = code_policy(source, self._spaces, self._evaluation.task, self._request.provenance)
        policy.save(folder)
        prefix = f"candidates/{candidate}/policy"
        await put_files(self._context, {f"{prefix}/{name}": folder / name for name in (CARD_FILE, SOURCE_FILE)})
        shutil.rmtree(folder, ignore_errors=True)
        message.policy = prefix


class _OnSeed(PolicyFailure):
    """A failure in the episode of a seed."""

    def __init__(self, error: PolicyFailure, seed: int) -> None:
        super().__init__(error.failure, episode=error.episode)
        self.message = f"{error.message} (in the episode of seed {seed})"


def code_policy(source: str, spaces: Spaces, task: Task, provenance: Mapping[str, str]) -> CodePolicy:
    """Return the bundle of a code policy."""
    discrete = spaces.num_observations
    return CodePolicy(
        source=source,
        environment=task.card.id,
        observation_size=0 if discrete else spaces.observation_size,
        observation_count=discrete,
        num_actions=spaces.num_actions,
        action_low=spaces.low,
        action_high=spaces.high,
        environment_options=dict(task.options),
        provenance=dict(provenance),
    )


def _is_code_card(path: Path) -> bool:
    try:
        card = json.loads(path.read_bytes())
    except (ValueError, RecursionError):
        return False  # the reader of other bundles says what is wrong
    return isinstance(card, dict) and card.get("kind") == CODE


def _set_failure(failure: session_pb2.Failure, error: PolicyFailure, *, subject: str) -> None:
    failure.reason, failure.message = error.reason, f"{subject}: {error.message}"
