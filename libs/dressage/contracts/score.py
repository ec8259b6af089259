"""Sandbox targets that apply generated code to recorded trajectories: returns under a reward, results of a judge."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dressage.contracts.check import REQUEST_TIMEOUT, dump_stack_after
from dressage.contracts.failures import GeneratedCodeError
from dressage.envs.cards import EnvironmentCard
from dressage.envs.trajectory import Trajectory
from dressage.sandbox.call import ENTERS_CODE
from dressage.sandbox.pipe import Channel


def score_trajectories(source: str, card: EnvironmentCard, trajectories: Sequence[Trajectory]) -> list[dict[str, Any]]:
    """Return each trajectory's return under the reward and the sum of every term. Call it only inside a sandbox.

    :returns: ``{"return": float, "terms": {name: float}}`` for each trajectory.
    :raises RewardError: the reward cannot be loaded or evaluated.
    """
    from dressage.contracts.reward import load_reward
    from dressage.contracts.segments import whole_episodes
    from dressage.contracts.transitions import evaluate

    module = load_reward(source, card)
    if not trajectories:
        return []
    terms = evaluate(module, card, whole_episodes(trajectories, card))
    return [
        {"return": float(np.sum(sums)), "terms": dict(zip(module.terms, sums.tolist(), strict=True))}
        for sums in terms.sum(0).T
    ]


def score(channel: Channel) -> None:
    """Sandbox target: score the trajectories of one request."""
    from dressage.contracts.messages import unpack_trajectory

    request = channel.recv(timeout=REQUEST_TIMEOUT)
    dump_stack_after(request["stack_after"])
    card = EnvironmentCard.from_dict(request["card"])
    trajectories = [unpack_trajectory(item) for item in request["trajectories"]]
    channel.send(ENTERS_CODE)
    try:
        channel.send({"scores": score_trajectories(request["source"], card, trajectories)})
    except GeneratedCodeError as error:
        channel.send({"failure": error.failure.to_dict(), "term": error.term, "row": error.row})


def judge(channel: Channel) -> None:
    """Sandbox target: judge the trajectories of one request."""
    from dressage.contracts.judge import load_judge, run_judge
    from dressage.contracts.messages import unpack_trajectory

    request = channel.recv(timeout=REQUEST_TIMEOUT)
    dump_stack_after(request["stack_after"])
    channel.send(ENTERS_CODE)
    try:
        module = load_judge(request["source"])
        trajectories = (unpack_trajectory(item) for item in request["trajectories"])
        channel.send({"results": [run_judge(module, trajectory).to_dict() for trajectory in trajectories]})
    except GeneratedCodeError as error:
        channel.send({"failure": error.failure.to_dict()})
