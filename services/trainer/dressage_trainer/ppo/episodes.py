"""Episode and reward-term statistics of the rollouts, per member."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from dressage.training import EPISODE_WINDOW

Arrays = dict[str, np.ndarray]


class EpisodeStatistics:
    """Sums returns and lengths of running episodes; keeps the last episodes that ended and each term's means.

    Returns are in the units of the trained reward (before normalisation) and of the environment's own reward.
    """

    def __init__(self, members: int, num_envs: int) -> None:
        self._members, self._num_envs = members, num_envs
        self._return = np.zeros((members, num_envs))
        self._stock = np.zeros((members, num_envs))
        self._length = np.zeros((members, num_envs))
        # The last EPISODE_WINDOW ended episodes of each member: return, stock return, length; NaN where none yet.
        self._recent = np.full((members, EPISODE_WINDOW, 3), np.nan)
        self._count = np.zeros(members, np.int64)
        self._terms: dict[str, np.ndarray] = {}
        self._magnitudes: dict[str, np.ndarray] = {}
        self._steps = 0

    def add(
        self,
        total: np.ndarray,
        terms: Mapping[str, np.ndarray],
        stock: np.ndarray,
        done: np.ndarray | None,
    ) -> None:
        """Add one step: (M, n) totals, (N,) terms, (N,) stock rewards, (N,) dones (None: no episode ended)."""
        self._add_returns(total, stock.reshape(self._stock.shape), None if done is None else done.reshape(total.shape))
        self._steps += 1
        for name, value in terms.items():
            self._add_term(name, value, np.abs(value))

    def add_rollout(
        self,
        totals: np.ndarray,
        terms: Mapping[str, tuple[np.ndarray, np.ndarray]],
        stock: np.ndarray,
        done: np.ndarray,
    ) -> None:
        """Add T steps.

        :param totals: (T, M, n).
        :param terms: by name, the sums over the steps of the values and of the magnitudes, (M * n,) each.
        :param stock: (T, M, n) rewards of the environment.
        :param done: (T, M, n) bool.
        """
        for total, own, ended in zip(totals, stock, done, strict=True):
            self._add_returns(total, own, ended if ended.any() else None)
        self._steps += len(totals)
        for name, (value, magnitude) in terms.items():
            self._add_term(name, value, magnitude)

    def _add_returns(self, total: np.ndarray, stock: np.ndarray, done: np.ndarray | None) -> None:
        self._return += total
        self._stock += stock
        self._length += 1.0
        if done is not None:
            self._end(done)

    def _add_term(self, name: str, value: np.ndarray, magnitude: np.ndarray) -> None:
        if name in self._terms:
            self._terms[name] += value
            self._magnitudes[name] += magnitude
        else:
            self._terms[name] = np.array(value, np.float64)
            self._magnitudes[name] = np.array(magnitude, np.float64)

    def _end(self, done: np.ndarray) -> None:
        for member, env in zip(*np.nonzero(done), strict=True):
            slot = self._count[member] % EPISODE_WINDOW
            self._recent[member, slot] = (
                self._return[member, env],
                self._stock[member, env],
                self._length[member, env],
            )
            self._count[member] += 1
        for array in (self._return, self._stock, self._length):
            array[done] = 0.0

    def take(self) -> list[dict[str, float | None]]:
        """Per member: episode means over its last 20 ended episodes, and, per step since the last call, each term's mean,
        its mean magnitude and its share of all terms' magnitudes. ``None`` where no episode has ended yet.
        """
        shape = (self._members, self._num_envs)
        steps = max(self._steps, 1)
        rows: list[dict[str, float | None]] = []
        for member in range(self._members):
            ended = self._recent[member][: min(int(self._count[member]), EPISODE_WINDOW)]
            mean = ended.mean(axis=0) if len(ended) else (None, None, None)
            names = ("episode_return", "environment_return", "episode_length")
            row: dict[str, float | None] = {
                name: None if value is None else float(value) for name, value in zip(names, mean, strict=True)
            }
            row["episodes"] = float(self._count[member])
            sizes = {name: float(v.reshape(shape)[member].mean() / steps) for name, v in self._magnitudes.items()}
            whole = sum(sizes.values())
            for name, value in self._terms.items():
                row[f"term/{name}"] = float(value.reshape(shape)[member].mean() / steps)
                row[f"term_magnitude/{name}"] = sizes[name]
                row[f"term_share/{name}"] = sizes[name] / whole if whole > 0 else None
            rows.append(row)
        self._terms, self._magnitudes, self._steps = {}, {}, 0
        return rows

    def arrays(self) -> Arrays:
        """Copies for a snapshot, which is taken after `take`: term sums are empty then."""
        return {
            "return": self._return.copy(),
            "stock": self._stock.copy(),
            "length": self._length.copy(),
            "recent": self._recent.copy(),
            "count": self._count.copy(),
        }

    def load(self, arrays: Arrays) -> None:
        """The inverse of `arrays`."""
        self._return = np.array(arrays["return"])
        self._stock = np.array(arrays["stock"])
        self._length = np.array(arrays["length"])
        self._recent = np.array(arrays["recent"])
        self._count = np.array(arrays["count"])
        self._terms, self._magnitudes, self._steps = {}, {}, 0
