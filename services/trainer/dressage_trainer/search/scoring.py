"""Play candidates: CartPole-v1 all at once, other environments on stock Gymnasium, one episode after another.

Several threads use a scorer at once, each with its own candidates.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from dressage.envs.cart_pole import ENV_ID as CART_POLE
from dressage.envs.cart_pole import CartPoleEpisodes
from dressage.envs.options import EnvOptions
from dressage.envs.reference import StockPlayer
from dressage.policies import Policy
from dressage.policies.kinds import kind
from numpy.typing import NDArray

from dressage_trainer.search.messages import SearchTask
from dressage_trainer.search.networks import Stacked

Array = NDArray[Any]
_MAX_ROWS = 16_384
"""Episodes simulated at once: enough to keep the interpreter's share small, and their arrays fit a processor's cache."""
_MAX_WEIGHTS = 1 << 24
"""Numbers of all networks that act at once, at most."""
_DROP_BELOW = 0.8
"""Rows of ended episodes are dropped once less than this part of the rows still runs."""


@dataclass(frozen=True)
class Scores:
    """Episodes of P candidates.

    :param returns: (P, E) float64, undiscounted.
    :param lengths: (P, E) int64.
    """

    returns: Array
    lengths: Array

    @classmethod
    def joined(cls, parts: Sequence[Scores]) -> Scores:
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
        return Scores.joined([self.confirm(vector) for vector in parameters])

    def confirm(self, parameters: Array) -> Scores:
        if not hasattr(self._local, "player"):
            self._local.player = StockPlayer(self._task.environment, EnvOptions(**self._task.options))
        player: StockPlayer = self._local.player
        act = policy_of(self._task, parameters).act
        outcomes = [player.play(act, seed) for seed in self._task.seeds]
        returns = np.array([[outcome.stock_return for outcome in outcomes]])
        return Scores(returns, np.array([[outcome.length for outcome in outcomes]], np.int64))


class CartPoleScorer:
    """CartPole-v1's arithmetic on all episodes at once; equal to stock Gymnasium to the bit."""

    exact = False

    def __init__(self, task: SearchTask) -> None:
        self._task = task
        self._starts = CartPoleEpisodes.start_states(task.seeds)
        options = EnvOptions(**task.options)
        self._limit = options.max_episode_steps or options.check(CART_POLE).max_episode_steps
        size = kind(task.policy.kind).size(task.policy)
        self._rows = max(1, min(_MAX_ROWS, _MAX_WEIGHTS // size))
        self.part = max(1, self._rows // task.episodes)

    def score(self, parameters: Array) -> Scores:
        networks = Stacked.of(self._task.policy, parameters)
        rows = len(parameters) * self._task.episodes
        first = range(0, rows, self._rows)
        lengths = [self._play(networks, np.arange(start, min(start + self._rows, rows))) for start in first]
        return _cart_pole_scores(np.concatenate(lengths).reshape(len(parameters), -1))

    def _play(self, networks: Stacked, rows: Array) -> Array:
        """Play episodes and return their lengths.

        :param rows: numbers of the episodes, candidate by candidate.
        """
        candidates, episodes = np.divmod(rows, self._task.episodes)
        simulation, acting = CartPoleEpisodes(self._starts[episodes]), networks.columns(candidates)
        lengths = np.full(len(rows), self._limit, np.int64)
        present, running = np.arange(len(rows)), np.ones(len(rows), bool)
        for step in range(1, self._limit):
            left, right = acting.outputs(simulation.observation())
            # Of equal scores the first one is the action, as in an argmax.
            ended = simulation.step(right > left) & running
            if not ended.any():
                continue
            lengths[present[ended]] = step
            running &= ~ended
            count = int(running.sum())
            if not count:
                break
            if count < _DROP_BELOW * len(running):
                kept = np.flatnonzero(running)
                present, running = present[kept], running[kept]
                simulation.keep(kept)
                acting = acting.columns(kept)
        return lengths

    def confirm(self, parameters: Array) -> Scores:
        act = policy_of(self._task, parameters).act
        return _cart_pole_scores(np.array([[self._alone(act, start) for start in self._starts]], np.int64))

    def _alone(self, act: Any, start: Array) -> int:
        simulation = CartPoleEpisodes(start[None])
        for step in range(1, self._limit):
            action = act(simulation.observation()[:, 0].astype(np.float64))
            if simulation.step(np.array([action == 1]))[0]:
                return step
        return self._limit


def policy_of(task: SearchTask, parameters: Array) -> Policy:
    """Return the policy with these numbers."""
    chosen = kind(task.policy.kind)
    card = chosen.card(task.policy, environment=task.environment, environment_options=task.options)
    return Policy(weights=chosen.weights(task.policy, parameters), card=card)


def scorer(task: SearchTask) -> Scorer:
    """Return the fastest scorer for this environment."""
    return CartPoleScorer(task) if task.environment == CART_POLE else StockScorer(task)


def _cart_pole_scores(lengths: Array) -> Scores:
    """Each step's reward is 1."""
    return Scores(lengths.astype(np.float64), lengths)
