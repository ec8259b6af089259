"""What is to be searched for: a checked `SearchAssignment` as plain values, which also go to the sandboxed process."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from dressage.api.internal.v1 import run_service_pb2 as pb
from dressage.errors import InvalidArgument
from dressage.policies.kinds import PolicySpec

from dressage_trainer.checks import check_count, policy_of, task_of
from dressage_trainer.search.algorithms import ALGORITHMS

MAX_EPISODES = 10_000
_MAX_THREADS = 64
_MAX_SCALE = 1e30
"""Ten standard deviations of it are well within single precision."""


@dataclass(frozen=True)
class SearchTask:
    """A search.

    :param policy: shape of the policy.
    :param budget: candidates that may be evaluated.
    :param episodes: episodes of each, with seeds from ``episode_seed`` on.
    :param target: score at which the search ends early; None: it uses its budget.
    """

    environment: str
    options: Mapping[str, Any]
    algorithm: str
    policy: PolicySpec
    budget: int
    episodes: int
    seed: int
    episode_seed: int
    target: float | None
    scale: float
    threads: int

    @property
    def seeds(self) -> tuple[int, ...]:
        """Seeds of the episodes."""
        return tuple(range(self.episode_seed, self.episode_seed + self.episodes))

    def identity(self) -> dict[str, Any]:
        """What the result depends on, as JSON values: a state belongs to one search only."""
        values = self.to_dict()
        del values["threads"]
        return values

    def to_dict(self) -> dict[str, Any]:
        """The task as JSON values."""
        return {**asdict(self), "options": dict(self.options), "policy": self.policy.to_dict()}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> SearchTask:
        """The inverse of `to_dict`."""
        return cls(**{**values, "policy": PolicySpec.from_dict(values["policy"])})


def search_task(assignment: pb.SearchAssignment, *, cores: int) -> SearchTask:
    """The checked assignment.

    :raises InvalidArgument: naming the field, its value and what would be right.
    """
    if assignment.algorithm not in ALGORITHMS:
        raise InvalidArgument(
            field="algorithm", value=assignment.algorithm, expected=f"one of {', '.join(map(repr, ALGORITHMS))}"
        )
    task = task_of(assignment.environment, assignment.options)
    scale, target = assignment.scale or 1.0, assignment.target if assignment.HasField("target") else None
    if not 0 < scale <= _MAX_SCALE:  # NaN is refused as well
        expected = f"a positive number of at most {_MAX_SCALE:g}, or 0 for 1"
        raise InvalidArgument(field="scale", value=assignment.scale, expected=expected)
    if target is not None and not math.isfinite(target):
        raise InvalidArgument(field="target", value=target, expected="a finite score, or none to use the whole budget")
    if not assignment.checkpoint_seconds >= 0:
        expected = "seconds between two checkpoints, at least 0"
        raise InvalidArgument(field="checkpoint_seconds", value=assignment.checkpoint_seconds, expected=expected)
    episodes = check_count("episodes", assignment.episodes, most=MAX_EPISODES)
    return SearchTask(
        environment=assignment.environment,
        options=task.options,
        algorithm=assignment.algorithm,
        policy=policy_of(assignment.policy, task.card),
        budget=check_count("budget", assignment.budget),
        episodes=episodes,
        seed=check_count("seed", assignment.seed, least=0),
        episode_seed=check_count("episode_seed", assignment.episode_seed, least=0, most=2**63 - 1 - episodes),
        target=target,
        scale=scale,
        threads=min(max(1, cores), _MAX_THREADS),
    )
