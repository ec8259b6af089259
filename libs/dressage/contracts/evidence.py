"""Sandbox targets of checks: they run generated code on recorded episodes and send what it returned.

Nothing here is a verdict. The code that is checked can get hold of the process and send what it likes, so the trusted side
lints the source itself and computes the report from these values (`dressage.contracts.check`, `probe`).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from dressage.contracts.check import (
    REQUEST_TIMEOUT,
    CheckReport,
    Reply,
    assess_judge,
    assess_reward,
    dump_stack_after,
)
from dressage.contracts.failures import GeneratedCodeError, RewardError
from dressage.contracts.judge import load_judge, run_judge
from dressage.contracts.probe import TIMED_ROWS, lone_rows, permutation, reset_mask, segments_of
from dressage.contracts.reward import BatchReward, RewardModule, RewardOutput, load_reward
from dressage.contracts.segments import Float, Segments, whole_episodes
from dressage.contracts.transitions import evaluate
from dressage.envs.cards import EnvironmentCard
from dressage.envs.trajectory import Trajectory
from dressage.sandbox.call import ENTERS_CODE
from dressage.sandbox.pipe import Channel

_FRESH_SECONDS = 2.0
"""For loading modules anew."""


def reward_evidence(
    source: str, card: EnvironmentCard, trajectories: Sequence[Trajectory], *, traceable: bool = False
) -> dict[str, Any]:
    """Return what a reward declares and computes. Call it only inside a sandbox.

    :returns: ``failure`` if it cannot be loaded; else ``latex``, ``terms``, ``milliseconds`` of a call on 1000 rows, and
        ``runs``: arrays or a failure, by the name of what was run.
    """
    try:
        module = load_reward(source, card)
    except RewardError as error:
        return _failure(error)
    segments = segments_of(trajectories, card)
    runs: dict[str, Any] = {}
    evidence = {"latex": module.latex, "terms": dict(module.terms), "milliseconds": 0.0, "runs": runs}
    for name, run in _runs(module, card, segments, trajectories).items():
        try:
            runs[name] = run()
        except RewardError as error:
            runs[name] = _failure(error)
            if name in ("first", "whole"):
                return evidence
    evidence["milliseconds"] = _milliseconds(module, card, segments)
    if traceable:
        evidence["obstacle"] = _obstacle(module, card)
    return evidence


def _runs(
    module: RewardModule, card: EnvironmentCard, segments: Segments, trajectories: Sequence[Trajectory]
) -> dict[str, Callable[[], Any]]:
    episodes = whole_episodes(trajectories, card)
    runs: dict[str, Callable[[], Any]] = {
        "first": lambda: evaluate(module, card, segments),
        "whole": lambda: evaluate(module, card, episodes),
        "again": lambda: evaluate(module, card, segments),
        "alone": lambda: np.concatenate(
            [evaluate(module, card, segments.select([row])) for row in lone_rows(segments.rows)], axis=2
        ),
        "permuted": lambda: evaluate(module, card, segments.select(permutation(segments.rows))),
        "reset": lambda: _after_reset(module, card, segments),
    }
    if module.load is not None:
        runs["fresh"] = lambda: _by_fresh_modules(module, card, episodes)
    return runs


def _after_reset(module: RewardModule, card: EnvironmentCard, segments: Segments) -> list[Float]:
    """Run, reset every other row, run again: the terms of the second run, with the reset and without it."""
    reward, unreset = (BatchReward(module, card, segments.rows) for _ in range(2))
    evaluate(module, card, segments, reward)
    evaluate(module, card, segments, unreset)
    reward.reset(reset_mask(segments.rows))
    return [evaluate(module, card, segments, reward), evaluate(module, card, segments, unreset)]


class _FreshReward(BatchReward):
    """Loads the module anew for each step and carries only the memory over."""

    def __call__(self, *arguments: Any) -> RewardOutput:
        assert self._module.load is not None
        self._module = replace(self._module, function=self._module.load())
        return super().__call__(*arguments)


def _by_fresh_modules(module: RewardModule, card: EnvironmentCard, episodes: Segments) -> Float:
    """Return the terms of the first steps, each computed by a module that was never called before.

    A module that takes long to load has fewer steps.
    """
    assert module.load is not None
    begin = time.perf_counter()
    module.load()
    steps = max(1, min(episodes.steps, int(_FRESH_SECONDS / (time.perf_counter() - begin + 1e-6))))
    return evaluate(module, card, episodes.until(steps), _FreshReward(module, card, episodes.rows))


def _milliseconds(module: RewardModule, card: EnvironmentCard, segments: Segments) -> float:
    wide = segments.select(np.arange(TIMED_ROWS) % segments.rows)
    reward = BatchReward(module, card, TIMED_ROWS)
    best = float("inf")
    for step in range(min(6, wide.steps)):
        state, after = wide.at(step), wide.at(step + 1)
        begin = time.perf_counter()
        reward(state, wide.action[step], after)
        best = min(best, time.perf_counter() - begin)
    return best * 1e3


def _obstacle(module: RewardModule, card: EnvironmentCard) -> dict[str, Any]:
    """Return why a reward cannot be compiled for a device, or was not examined; an empty dict if it can be."""
    from dressage.contracts.device import RULE, trace_reward

    try:
        obstacle = trace_reward(module, card)
    except ImportError as error:
        message = (
            "it is not known whether the reward can be compiled for a device: JAX is not installed where it is checked"
        )
        return {"examined": False, **_failure(RewardError(RULE, message, seen=str(error)))}
    return {} if obstacle is None else {"examined": True, "failure": obstacle.to_dict()}


def judge_evidence(source: str, trajectories: Mapping[str, Sequence[Trajectory]]) -> dict[str, Any]:
    """Return a judge's results for each trajectory. Call it only inside a sandbox.

    :returns: ``results`` by label: of each trajectory the result of one module that judges all of them, that of a module
        which is loaded anew for it, and milliseconds of processor time. ``failure`` ends them.
    """
    results: dict[str, list[Any]] = {label: [] for label in trajectories}
    try:
        module = load_judge(source)
        for label, group in trajectories.items():
            for trajectory in group:
                begin = time.thread_time()  # processor time: another program's load does not make a judge slow
                result = run_judge(module, trajectory)
                milliseconds = (time.thread_time() - begin) * 1e3
                fresh = run_judge(module.load(), trajectory)
                results[label].append([result.to_dict(), fresh.to_dict(), milliseconds])
    except GeneratedCodeError as error:
        return {"results": results, **_failure(error)}
    return {"results": results}


def _failure(error: GeneratedCodeError) -> dict[str, Any]:
    return {"failure": error.failure.to_dict(), "term": error.term, "row": error.row}


def examine_reward(
    source: str,
    card: EnvironmentCard,
    trajectories: Sequence[Trajectory],
    *,
    budget: Mapping[str, float] | None = None,
    traceable: bool = False,
) -> CheckReport:
    """Check a reward in this process: lint, load, and run it on recorded transitions. Call it only inside a sandbox.

    :param traceable: also examine whether a reward that passes can be compiled for a device (imports JAX).
    """

    def evidence() -> Reply:
        return reward_evidence(source, card, trajectories, traceable=traceable), math.inf

    return assess_reward(source, card, trajectories, evidence, budget=budget, traceable=traceable)


def examine_judge(
    source: str,
    card: EnvironmentCard,
    trajectories: Mapping[str, Sequence[Trajectory]],
    *,
    nulls: Sequence[str] = (),
    threshold: float = 0.7,
) -> CheckReport:
    """Check a judge in this process. Call it only inside a sandbox; arguments as of `assess_judge`."""

    def evidence() -> Reply:
        return judge_evidence(source, trajectories), math.inf

    return assess_judge(source, card, trajectories, evidence, nulls=nulls, threshold=threshold)


def check_reward(channel: Channel) -> None:
    """Sandbox target: run the reward of one request."""
    from dressage.contracts.messages import unpack_trajectory

    request = channel.recv(timeout=REQUEST_TIMEOUT)
    dump_stack_after(request["stack_after"])
    card = EnvironmentCard.from_dict(request["card"])
    trajectories = [unpack_trajectory(item) for item in request["trajectories"]]
    channel.send(ENTERS_CODE)
    channel.send(reward_evidence(request["source"], card, trajectories, traceable=request["traceable"]))


def check_judge(channel: Channel) -> None:
    """Sandbox target: run the judge of one request."""
    from dressage.contracts.messages import unpack_trajectory

    request = channel.recv(timeout=REQUEST_TIMEOUT)
    dump_stack_after(request["stack_after"])
    groups = {label: [unpack_trajectory(item) for item in items] for label, items in request["trajectories"].items()}
    channel.send(ENTERS_CODE)
    channel.send(judge_evidence(request["source"], groups))
