"""Play candidates: by the batched engine where the environment has one, else on stock Gymnasium, episode after episode.

Several threads use a scorer at once, each with its own candidates.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from dressage.envs.options import EnvOptions
from dressage.envs.reference import StockPlayer
from dressage.episodes.choice import EpisodeEngine, acts_alike, episode_engine
from dressage.policies import Policy
from dressage.policies.kinds import kind
from numpy.typing import NDArray

from dressage_trainer.search.messages import SearchTask

Array = NDArray[Any]


@dataclass(frozen=True)
class Scores:
    """Episodes of P candidates.

    :param returns: (P, E) float64, undiscounted.
    :param lengths: (P, E) int64.
    """

    returns: Array
    lengths: Array

    @classmethod
    def concatenate(cls, parts: Sequence[Scores]) -> Scores:
        """Return the candidates of all parts, in order."""
        return cls(np.concatenate([part.returns for part in parts]), np.concatenate([part.lengths for part in parts]))


class Scorer(Protocol):
    """Plays the episodes of a search's candidates."""

    part: int
    """Candidates that one call of `score` should get, at most."""
    exact: bool
    """Whether `score` gives what `confirm` gives, to the last digit."""

    def score(self, parameters: Array) -> Scores:
        """Play all episodes of the candidates (P, n)."""

    def confirm(self, parameters: Array) -> Scores:
        """Play one candidate (n,) as its policy acts alone, as evaluations on stock Gymnasium do."""


class StockScorer:
    """Stock Gymnasium, with an environment for each thread."""

    part = 1
    exact = True

    def __init__(self, task: SearchTask) -> None:
        self._task = task
        self._local = threading.local()

    def score(self, parameters: Array) -> Scores:
        return Scores.concatenate([self.confirm(vector) for vector in parameters])

    def confirm(self, parameters: Array) -> Scores:
        if not hasattr(self._local, "player"):
            self._local.player = StockPlayer(self._task.environment, EnvOptions(**self._task.options))
        player: StockPlayer = self._local.player
        act = policy_of(self._task, parameters).act
        outcomes = [player.play(act, seed) for seed in self._task.seeds]
        returns = np.array([[outcome.stock_return for outcome in outcomes]])
        return Scores(returns, np.array([[outcome.length for outcome in outcomes]], np.int64))


class BatchScorer:
    """The batched engine, one for each thread. Its simulation equals stock Gymnasium's to the bit.

    A linear policy or a table acts in it to the bit as alone. Other kinds may differ in the last digit, so that their
    improvements are confirmed on stock Gymnasium.

    :param first: an engine of the task, for the first thread.
    """

    def __init__(self, task: SearchTask, first: EpisodeEngine) -> None:
        self._task = task
        self._stock = StockScorer(task)
        self._local = threading.local()
        self.part, self.exact = first.part, acts_alike(task.policy)

    def score(self, parameters: Array) -> Scores:
        if not hasattr(self._local, "engine"):
            self._local.engine = _engine(self._task)
        outcomes = self._local.engine.play(parameters)
        return Scores(outcomes.returns, outcomes.lengths)

    def confirm(self, parameters: Array) -> Scores:
        return self.score(parameters[None]) if self.exact else self._stock.confirm(parameters)


def policy_of(task: SearchTask, parameters: Array) -> Policy:
    """Return the policy with these numbers."""
    chosen = kind(task.policy.kind)
    card = chosen.card(task.policy, environment=task.environment, environment_options=task.options)
    return Policy(weights=chosen.weights(task.policy, parameters), card=card)


def scorer(task: SearchTask) -> Scorer:
    """Return the fastest scorer for this environment."""
    engine = _engine(task)
    return StockScorer(task) if engine is None else BatchScorer(task, engine)


def _engine(task: SearchTask) -> EpisodeEngine | None:
    # One native thread each: the search has as many threads as cores.
    return episode_engine(task.environment, task.policy, task.seeds, EnvOptions(**task.options))
