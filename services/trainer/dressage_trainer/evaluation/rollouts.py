"""Turn recorded episodes into an evaluation: returns, speeds, and the episodes that are kept as p10, median and p90."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from dressage.api.v1 import session_pb2
from dressage.envs.trajectory import Trajectory

LABELS: Mapping[str, float] = {"p10": 0.1, "median": 0.5, "p90": 0.9}


@dataclass(frozen=True)
class Episode:
    """One evaluated episode.

    :param stock_return: sum of the environment's own rewards.
    :param proposed_return: sum of the proposal's rewards; the stock return where there is no proposal.
    """

    trajectory: Trajectory
    stock_return: float
    proposed_return: float


def representative(stock_returns: Sequence[float]) -> dict[str, int]:
    """Return the indices of the episodes nearest the 10 %, 50 % and 90 % quantile of the stock returns (ties: the first).

    The stock return orders them: with returns under the proposed reward, generated code could choose what the judge sees.

    :raises ValueError: if there is no episode.
    """
    if not stock_returns:
        raise ValueError("no episode to choose from")
    order = np.argsort(np.asarray(stock_returns), kind="stable")
    last = len(order) - 1
    return {label: int(order[round(quantile * last)]) for label, quantile in LABELS.items()}


def labelled(stock_returns: Sequence[float], *, every: bool) -> dict[str, int]:
    """Return the indices of the episodes to record, by label.

    :param every: whether to record the others as well, labelled by their place, such as ``episode4``.
    """
    chosen = representative(stock_returns)
    if every:
        others = set(range(len(stock_returns))) - set(chosen.values())
        chosen |= {f"episode{index + 1}": index for index in sorted(others)}
    return chosen


def mean_speed(trajectory: Trajectory) -> float | None:
    """Return the mean forward speed of an episode in m/s, displacement over time; None if nothing moves along x."""
    position = trajectory.fields.get("x_position")
    time = trajectory.fields.get("time")
    if position is None or time is None or len(time) < 2 or "x_velocity" not in trajectory.fields:
        return None
    return float((position[-1] - position[0]) / (time[-1] - time[0]))


def evaluation(episodes: Sequence[Episode], *, env_step: int, keys: Mapping[str, str]) -> session_pb2.Evaluation:
    """Return the evaluation's message.

    :param env_step: environment steps of the checkpoint.
    :param keys: artifact key, relative to the run, by label.
    """
    message = session_pb2.Evaluation(env_step=env_step)
    for episode in episodes:
        message.returns.append(episode.stock_return)
        message.proposed_returns.append(episode.proposed_return)
        message.lengths.append(len(episode.trajectory.action))
        speed = mean_speed(episode.trajectory)
        if speed is not None:
            message.speeds.append(speed)
    for label, index in labelled([episode.stock_return for episode in episodes], every=len(keys) > len(LABELS)).items():
        chosen = episodes[index]
        message.rollouts.add(
            artifact=keys[label],
            label=label,
            seed=chosen.trajectory.seed,
            proposed_return=chosen.proposed_return,
            **{"return": chosen.stock_return},
        )
    return message
