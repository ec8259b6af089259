"""Rollouts and statistics of a candidate as text for a model. Pure.

A rollout is a list of steps, each with the state before it and the action; the last line is the final state and how the episode
ended. A bounded rollout has its head, its tail and its decisive steps: those whose reward differs most from the usual one or,
where all rewards are equal, those in which the state changes most. Numbers have 3 significant digits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from dressage.envs.trajectory import Trajectory
from dressage.statistics import mean
from numpy.typing import NDArray

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
    shown = _chosen(trajectory, bound)
    lines = [f"{title}: return {_number(trajectory.stock_return)}, {trajectory.num_steps} steps"]
    before = -1
    for step in shown:
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


def _chosen(trajectory: Trajectory, bound: Bound | None) -> list[int]:
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


def joined(parts: Mapping[str, str]) -> str:
    """Return the sections of a text, those that are not empty."""
    return "\n\n".join(text for text in parts.values() if text)
