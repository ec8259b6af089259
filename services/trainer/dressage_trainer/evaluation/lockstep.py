"""Episodes that step together, for policies in another process. Part of a player: environments, and no generated code.

`Lockstep` answers requests of the supervisor, who carries observations to the policy and actions back. What is recorded are the
actions; a rollout is recorded afterwards by replaying them on the reference environment from the same seed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from dressage.envs.cards import EnvironmentCard
from dressage.envs.options import EnvOptions
from dressage.envs.reference import StockPlayer
from dressage.envs.stock import Source, make_stock, source_of
from dressage.episodes.choice import lockstep
from dressage.errors import InvalidArgument
from numpy.typing import NDArray

Array = NDArray[Any]
_KEPT = 512
"""Environments that stay ready for the next request."""


class Simulation(Protocol):
    """N environments that step together; each plays one episode."""

    def reset(self, seeds: Sequence[int]) -> Array:
        """Start an episode in each of the first N environments; return observations (N, D) float64."""
        ...

    def step(self, rows: Array, actions: Array) -> tuple[Array, Array, Array, Array]:
        """Step some environments.

        :param rows: (n,) their indices.
        :param actions: (n,) int64, or (n, A) float32.
        :returns: observations (n, D), rewards (n,), ends (n,) bool, and successes (n,) int8, -1 where it is not defined.
        """
        ...

    def close(self) -> None:
        """Close the environments."""
        ...


class StockSimulation:
    """The reference environments, one after another."""

    def __init__(self, card: EnvironmentCard, options: EnvOptions) -> None:
        self._card, self._options = card, options
        self._envs: list[tuple[Any, Source]] = []

    def reset(self, seeds: Sequence[int]) -> Array:
        while len(self._envs) > max(_KEPT, len(seeds)):
            self._envs.pop()[0].close()
        while len(self._envs) < len(seeds):
            env = make_stock(self._card, self._options)
            self._envs.append((env, source_of(self._card, env)))
        return np.stack(
            [source.flat(env.reset(seed=seed)[0]) for (env, source), seed in zip(self._envs, seeds, strict=False)]
        )

    def step(self, rows: Array, actions: Array) -> tuple[Array, Array, Array, Array]:
        count = len(rows)
        observations = np.empty((count, self._card.observation_size))
        rewards, ends, successes = np.empty(count), np.empty(count, bool), np.full(count, -1, np.int8)
        for place, (row, action) in enumerate(zip(rows.tolist(), actions, strict=True)):
            env, source = self._envs[row]
            observation, rewards[place], terminated, truncated, info = env.step(source.action(action))
            observations[place], ends[place] = source.flat(observation), terminated or truncated
            if "is_success" in info:
                successes[place] = bool(info["is_success"])
        return observations, rewards, ends, successes

    def close(self) -> None:
        while self._envs:
            self._envs.pop()[0].close()


class Lockstep:
    """Answers the requests of one supervisor after another."""

    def __init__(self) -> None:
        self._key: tuple[str, str] | None = None
        self._simulation: Simulation | None = None
        self._episodes: _Episodes | None = None

    def answer(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Return the reply to a request, whose ``lockstep`` names what to do.

        - ``begin``: ``environment``, ``options``, ``seeds``, ``observed`` (whether to keep observations). Reply:
          ``observations`` (n, D) and ``episodes`` (n,), those that run.
        - ``step``: ``actions`` of the running episodes. Reply: as for ``begin``; at the end ``returns``, ``lengths`` and
          ``successes`` as well, and no rows.
        - ``actions``: ``episode``. Reply: ``actions`` (T,) or (T, A).
        - ``observations``: ``episode``. Reply: ``observations`` (T+1, D).
        - ``replay``: ``environment``, ``options``, ``seed``, ``actions``, ``folder``. Reply: ``path`` and ``return`` of the
          recorded rollout; an empty path if the environment does not repeat the episode.

        :raises InvalidArgument: for an unknown environment or a bad option.
        """
        what = request["lockstep"]
        if what == "replay":
            return self._replay(request)
        if what == "begin":
            simulation, limit = self._simulation_of(request["environment"], request["options"])
            self._episodes = _Episodes(simulation, request["seeds"], limit=limit, observed=bool(request["observed"]))
            return self._episodes.running()
        assert self._episodes is not None
        if what == "step":
            self._episodes.step(request["actions"])
            return self._episodes.running()
        episode = int(request["episode"])
        if what == "actions":
            return {"actions": self._episodes.actions_of(episode)}
        return {"observations": self._episodes.observations_of(episode)}

    def _simulation_of(self, environment: str, options: Mapping[str, Any]) -> tuple[Simulation, int]:
        chosen = EnvOptions(**options)
        card, key = chosen.check(environment), (environment, repr(sorted(options.items())))
        if self._simulation is None or key != self._key:
            if self._simulation is not None:
                self._simulation.close()
            self._key, self._simulation = key, lockstep(environment, chosen) or StockSimulation(card, chosen)
        return self._simulation, chosen.max_episode_steps or card.max_episode_steps

    def _replay(self, request: Mapping[str, Any]) -> dict[str, Any]:
        actions = iter(request["actions"])
        with StockPlayer(request["environment"], EnvOptions(**request["options"])) as player:
            try:
                trajectory, outcome = player.record(lambda _: next(actions), int(request["seed"]))
            except StopIteration:
                return {"path": "", "return": 0.0}
        path = Path(request["folder"]) / "0.npz"
        path.parent.mkdir(parents=True, exist_ok=True)
        trajectory.save(path)
        return {"path": str(path), "return": outcome.stock_return}


class _Episodes:
    """The episodes of one request."""

    def __init__(self, simulation: Simulation, seeds: Sequence[int], *, limit: int, observed: bool) -> None:
        count = len(seeds)
        self._simulation, self._limit = simulation, limit
        self._now = simulation.reset(seeds)
        self._rows: Array = np.arange(count)
        self._steps = 0
        self._rewards = np.zeros((count, limit))
        self._lengths = np.zeros(count, np.int64)
        self._successes = np.full(count, -1, np.int8)
        self._actions: Array | None = None
        self._observations: Array | None = None
        if observed:
            self._observations = np.zeros((count, limit + 1, self._now.shape[1]))
            self._observations[:, 0] = self._now

    def running(self) -> dict[str, Any]:
        """Return the observations of the episodes that run; the outcomes, if none does."""
        reply: dict[str, Any] = {"observations": self._now, "episodes": self._rows}
        if not len(self._rows):
            # In NumPy's order of additions, as in all engines, so that returns are equal to the bit (decision 0039).
            totals = [
                float(np.sum(row[:length])) for row, length in zip(self._rewards, self._lengths.tolist(), strict=True)
            ]
            reply |= {"returns": np.array(totals), "lengths": self._lengths, "successes": self._successes}
        return reply

    def step(self, actions: Array) -> None:
        """Step the running episodes."""
        if self._actions is None:
            self._actions = np.zeros((len(self._lengths), self._limit, *actions.shape[1:]), actions.dtype)
        rows, at = self._rows, self._steps
        if at >= self._limit:
            raise InvalidArgument(field="max_episode_steps", value=self._limit, expected="the environment's time limit")
        observations, rewards, ends, successes = self._simulation.step(rows, actions)
        self._actions[rows, at], self._rewards[rows, at] = actions, rewards
        self._successes[rows], self._lengths[rows] = successes, at + 1
        if self._observations is not None:
            self._observations[rows, at + 1] = observations
        self._steps = at + 1
        going = ~ends
        self._rows, self._now = rows[going], observations[going]

    def actions_of(self, episode: int) -> Array:
        """Return the actions of an episode."""
        assert self._actions is not None
        return np.array(self._actions[episode, : self._lengths[episode]])

    def observations_of(self, episode: int) -> Array:
        """Return the observations of an episode, those of its first and its last state included."""
        assert self._observations is not None
        return np.array(self._observations[episode, : self._lengths[episode] + 1])
