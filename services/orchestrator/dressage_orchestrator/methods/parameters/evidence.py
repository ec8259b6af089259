"""Rollouts and statistics of a candidate as text for a model. Pure.

A rollout is a list of steps, each with the state before it and the action; the last line is the final state and how the episode
ended. A bounded rollout has its head, its tail and its decisive steps: those whose reward differs most from the usual one or,
where all rewards are equal, those in which the state changes most. Numbers have 3 significant digits.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from dressage.api.v1 import session_pb2 as v1
from dressage.artifacts import ArtifactStore
from dressage.envs.trajectory import Trajectory
from dressage.errors import InvalidArgument, NotFound
from dressage.statistics import mean
from numpy.typing import NDArray

from dressage_orchestrator.lifecycle.context import SessionContext
from dressage_orchestrator.methods.parameters.form import key_of
from dressage_orchestrator.methods.parameters.history import History, Trial
from dressage_orchestrator.methods.parameters.variants import Profile, Variant

_COMPONENTS = 24
"""Components of a state that are shown, at most."""
_DIGITS = 3


@dataclass(frozen=True)
class Bound:
    """Steps of a rollout that are shown, at most."""

    head: int
    tail: int
    decisive: int = 0

    @property
    def steps(self) -> int:
        """Number of steps."""
        return self.head + self.tail + self.decisive


ROLLOUT = Bound(head=10, tail=15, decisive=8)
ENDS = Bound(head=25, tail=25)
"""Of each of three rollouts."""
EXCERPT = Bound(head=4, tail=4)
"""In the history."""
WHOLE = None


def success_tolerance(optimum: float) -> float:
    """Return how far below the optimum a return still counts as a success."""
    return max(1e-6, 1e-3 * max(1.0, abs(optimum)))


def statistics(returns: Sequence[float], lengths: Sequence[int], *, optimum: float | None) -> str:
    """Return the statistics over all episodes of a candidate.

    :param optimum: return from which, within a tolerance, an episode counts as a success; None: successes are not counted.
    """
    lines = [
        f"Episodes: {len(returns)}",
        f"Return: mean {_number(mean(returns))}, min {_number(min(returns))}, max {_number(max(returns))}",
        f"Length in steps: mean {_number(mean(lengths))}, min {min(lengths)}, max {max(lengths)}",
    ]
    if optimum is not None:
        reached = sum(value >= optimum - success_tolerance(optimum) for value in returns)
        lines.append(
            f"Episodes that reached the optimum {_number(optimum)}: {reached}; others: {len(returns) - reached}"
        )
    return "\n".join(lines)


def rollout(
    trajectory: Trajectory, *, bound: Bound | None, title: str, rewards: bool = False, observations: int = 0
) -> str:
    """Return a rollout as text.

    :param bound: None for all steps.
    :param title: first words of the first line.
    :param rewards: whether each step shows its reward.
    :param observations: number of discrete observations; 0 for others.
    """
    states = _states(trajectory, observations)
    steps_shown = _select_steps(trajectory, bound)
    lines = [f"{title}: return {_number(trajectory.stock_return)}, {trajectory.num_steps} steps"]
    before = -1
    for step in steps_shown:
        if step > before + 1:
            lines.append(f"... {step - before - 1} steps omitted ...")
        reward = f" reward {_number(float(trajectory.reward[step]))}" if rewards else ""
        lines.append(f"{step}: {states[step]} -> {_action(trajectory, step)}{reward}")
        before = step
    if before + 1 < trajectory.num_steps:
        lines.append(f"... {trajectory.num_steps - before - 1} steps omitted ...")
    lines.append(f"{trajectory.num_steps}: {states[-1]} ({_ending(trajectory)})")
    return "\n".join(lines)


def decisive_steps(trajectory: Trajectory, count: int) -> list[int]:
    """Return the steps whose reward, or else whose change of state, differs most from the usual one; in order of time."""
    reward = np.asarray(trajectory.reward, np.float64)
    surprise = np.abs(reward - np.median(reward)) if len(reward) else reward
    if not surprise.any():
        surprise = _changes(trajectory)
    ranked = np.argsort(-surprise, kind="stable")[:count]
    return sorted(int(step) for step in ranked if surprise[step] > 0)


def _select_steps(trajectory: Trajectory, bound: Bound | None) -> list[int]:
    steps = trajectory.num_steps
    if bound is None or steps <= bound.steps:
        return list(range(steps))
    chosen = {*range(bound.head), *range(steps - bound.tail, steps)}
    return sorted(chosen | set(decisive_steps(trajectory, bound.decisive)))


def _changes(trajectory: Trajectory) -> NDArray[np.float64]:
    """Return by how much the state changes in each step, in standard deviations of its components."""
    observation = np.asarray(trajectory.fields["observation"], np.float64)
    flat = observation.reshape(len(observation), -1)
    if len(flat) < 2:
        return np.zeros(0)
    changes = np.abs(np.diff(flat, axis=0))
    spread = changes.std(axis=0)
    ratios = np.divide(changes - changes.mean(axis=0), spread, out=np.zeros_like(changes), where=spread > 0)
    return np.asarray(np.maximum(ratios.max(axis=1, initial=0.0), 0.0))


def _states(trajectory: Trajectory, observations: int) -> list[str]:
    observation = trajectory.fields["observation"]
    if observations:
        numbers = observation if observation.ndim == 1 else observation.argmax(axis=-1)
        return [f"state {int(number)}" for number in numbers]
    rows = observation.reshape(len(observation), -1)
    more = "" if rows.shape[1] <= _COMPONENTS else f", and {rows.shape[1] - _COMPONENTS} more"
    return ["[" + ", ".join(_number(float(v)) for v in row[:_COMPONENTS]) + more + "]" for row in rows]


def _action(trajectory: Trajectory, step: int) -> str:
    action = np.asarray(trajectory.action[step])
    if action.ndim == 0:
        return f"action {int(action)}" if float(action).is_integer() else f"action {_number(float(action))}"
    return "action [" + ", ".join(_number(float(value)) for value in action) + "]"


def _ending(trajectory: Trajectory) -> str:
    if trajectory.terminated:
        return "the episode terminated"
    return "the limit of steps was reached" if trajectory.truncated else "the recording ends"


def _number(value: float) -> str:
    return f"{value:.{_DIGITS}g}" if abs(value) < 1e3 else f"{value:.0f}"


def join_sections(parts: Mapping[str, str]) -> str:
    """Return the sections of a text, those that are not empty."""
    return "\n\n".join(text for text in parts.values() if text)


FIRST = "first"


def load_rollout(store: ArtifactStore, artifact: str) -> Trajectory | None:
    """Return a stored trajectory; None if it was deleted or is damaged."""
    with tempfile.TemporaryDirectory(prefix="dressage-rollout-") as folder:
        path = Path(folder) / "rollout.npz"
        try:
            path.write_bytes(store.get(artifact))
            return Trajectory.load(path)
        except (NotFound, InvalidArgument):
            return None


def rollout_artifact(result: v1.CandidateResult, label: str) -> str:
    """Return the artifact of the rollout with a label, or else that of the first rollout; empty if there is none."""
    named = [entry.artifact for entry in result.rollouts if entry.label == label]
    return (named or [entry.artifact for entry in result.rollouts] or [""])[0]


_TITLES = {
    "median": "Median rollout",
    "nearest_mean": "Rollout whose return is closest to the mean",
    "worst": "Worst rollout",
    "best": "Best rollout",
    "first": "First rollout",
}


class EvidenceReader:
    """Evidence of candidates. Texts of recorded rollouts do not change, so they are kept in memory."""

    def __init__(self, context: SessionContext, variant: Variant, profile: Profile) -> None:
        self._context, self._variant, self._profile = context, variant, profile
        self._excerpts: dict[tuple[int, int], str] = {}

    def of_candidate(
        self, number: int, trial: Trial, history: History, *, result: v1.CandidateResult | None = None
    ) -> str:
        """Return what the critic is shown of a candidate.

        :param number: iteration of the candidate.
        :param result: its result; None if it was played before.
        """
        result = result or self._result(number, trial) or self._earlier(trial, history)
        if result is None:
            return ""
        settings, parts = self._context.spec.parameters, {}
        if self._variant.statistics:
            optimum = settings.optimum if settings.HasField("optimum") else None
            parts["statistics"] = statistics(result.returns, result.lengths, optimum=optimum)
        ends = ENDS if len(self._variant.rollout_labels) > 1 else None
        for label in self._variant.rollout_labels:
            bound = ends or (ROLLOUT if self._profile.is_bounded else WHOLE)
            parts[label] = self._rollout(result, label, bound=bound, rewards=self._variant.rewards)
        return join_sections(parts)

    def latest(self, history: History) -> str:
        """Return a rollout of the candidate that the latest iteration kept; empty if there is none."""
        trial = history.latest
        if trial is None:
            return ""
        result = self._earlier(trial, history)
        bound = ROLLOUT if self._profile.is_bounded else WHOLE
        return "" if result is None else self._rollout(result, self._variant.trace, bound=bound, rewards=True)

    def excerpt(self, trial: Trial) -> str:
        """Return a candidate's rollout for the history; empty if there is none."""
        key = (trial.iteration, trial.number)
        if key not in self._excerpts:
            result = self._result(trial.iteration, trial)
            whole = not self._profile.is_bounded and self._variant.trace == FIRST
            bound = WHOLE if whole else EXCERPT
            text = "" if result is None else self._rollout(result, self._variant.trace, bound=bound, rewards=False)
            self._excerpts[key] = text
        return self._excerpts[key]

    def _rollout(self, result: v1.CandidateResult, label: str, *, bound: Bound | None, rewards: bool) -> str:
        artifact = rollout_artifact(result, label)
        trajectory = load_rollout(self._context.engine.store, artifact) if artifact else None
        if trajectory is None:
            return ""
        observations = self._context.card.num_observations
        return rollout(trajectory, bound=bound, title=_TITLES[label], rewards=rewards, observations=observations)

    def _earlier(self, trial: Trial, history: History) -> v1.CandidateResult | None:
        """Return the result of the first evaluation of the same candidate."""
        first = history.find(trial.values)
        return None if first is None else self._result(first.iteration, first)

    def _result(self, number: int, trial: Trial) -> v1.CandidateResult | None:
        """Return a candidate's result in the assignments of an iteration; rows of ended assignments do not change."""
        iteration = self._context.store.iteration(number)
        key = key_of(trial.values)
        for name in iteration.assignments:
            if name.rpartition("/")[2] not in ("first", "second"):
                continue
            row = self._context.store.assignment(name)
            for request, result in zip(row.work.evaluate.candidates, row.assignment.candidates, strict=False):
                if key_of(request.parameters.values) == key:
                    return result
        return None
