"""Random search and hill climbing, resumable at any program.

Candidate n of a search draws from stream n of its seed, whatever thread draws it and however the search was interrupted:
the same settings give the same search. A climb moves to the first neighbour that scores strictly better, draws a new
neighbourhood there, and ends when none of ``k`` neighbours does. Then the next climb begins, from a random program or from
the next of the given starts, best first and over again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dressage.errors import InvalidArgument
from dressage.programs.engine.trees import Nodes
from dressage.programs.search.best import BestSoFar, Improvement
from dressage.programs.search.parallel import Scorers
from dressage.programs.search.settings import SearchSettings

_EMPTY: Nodes = np.zeros(0, np.int32)
_LOWEST = -1e300


@dataclass
class _Climb:
    """Where a climb is."""

    nodes: Nodes
    score: float
    returns: NDArray[np.float64]
    neighbours: int
    tried: int = 0

    def order(self) -> NDArray[np.int64]:
        """Return the variations, those with the lowest returns first."""
        return np.argsort(self.returns, kind="stable")


class Search(BestSoFar):
    """One random search or hill climb.

    :param scorers: score the candidates.
    :param starts: programs to climb from; without any, climbs begin at random programs.
    :param on_improvement: called with each improvement, in order, in the thread that calls `run`.
    :raises InvalidArgument: for starts with random search.
    """

    def __init__(
        self,
        scorers: Scorers,
        settings: SearchSettings,
        starts: Sequence[Nodes] = (),
        on_improvement: Callable[[Improvement], None] | None = None,
    ) -> None:
        if starts and settings.algorithm == "random":
            raise InvalidArgument(field="starts", problem="not used by random search", expected="hc or scheduled-hc")
        super().__init__(settings, on_improvement)
        self.climbs = 0
        self._scorers = scorers
        self._starts = [np.asarray(start, np.int32) for start in starts]
        self._start_results: list[tuple[float, NDArray[np.float64]]] = []
        self._climb: _Climb | None = None

    def run(self, until: int | None = None) -> None:
        """Search until it is finished, or ``until`` programs are evaluated."""
        end = self.settings.budget if until is None else min(until, self.settings.budget)
        while not self.solved and self.programs < end:
            if len(self._start_results) < len(self._starts):
                self._score_start()
            elif self._climb is None:
                self._begin_climb()
            else:
                self._look_at_neighbours(self._climb, end - self.programs)

    def _score_start(self) -> None:
        nodes = self._starts[len(self._start_results)]
        score, returns = self._scorers.score(nodes)
        self._start_results.append((score, returns))
        self.programs += 1
        self._report(score, nodes)

    def _begin_climb(self) -> None:
        k = self._neighbourhood()
        if self._starts:
            ranked = sorted(range(len(self._starts)), key=lambda i: -self._start_results[i][0])
            chosen = ranked[self.climbs % len(ranked)]
            score, returns = self._start_results[chosen]
            self._climb = _Climb(self._starts[chosen], score, returns, k)
        else:
            order = np.arange(self._scorers.variations)
            _, match = self._scorers.search(_EMPTY, self.settings.seed, self.programs, 1, _LOWEST, order)
            assert match is not None
            _, nodes, score, returns = match
            self.programs += 1
            self._climb = _Climb(nodes, score, returns, k)
            self._report(score, nodes)
        self.climbs += 1

    def _neighbourhood(self) -> int:
        if self.settings.algorithm == "random":
            return self.settings.budget
        return self.settings.climb_neighbours(self.programs)

    def _look_at_neighbours(self, climb: _Climb, most: int) -> None:
        parent = _EMPTY if self.settings.algorithm == "random" else climb.nodes
        most = min(most, climb.neighbours - climb.tried)
        count, match = self._scorers.search(parent, self.settings.seed, self.programs, most, climb.score, climb.order())
        self.programs += count
        climb.tried += count
        if match is not None:
            _, nodes, score, returns = match
            self._climb = _Climb(nodes, score, returns, climb.neighbours)
            self._report(score, nodes)
        elif climb.tried >= climb.neighbours:
            self._climb = None

    def state(self) -> dict[str, Any]:
        """Return what `restore` needs to continue, as JSON."""
        return {
            **self._state_so_far(),
            "climbs": self.climbs,
            "starts": [{"score": score, "returns": returns.tolist()} for score, returns in self._start_results],
            "climb": None if self._climb is None else _climb_state(self._climb),
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from `state` of a search with the same settings, scorers and starts."""
        self._restore_so_far(state)
        self.climbs, climb = state["climbs"], state["climb"]
        self._start_results = [(row["score"], np.array(row["returns"])) for row in state["starts"]]
        self._climb = climb and _Climb(
            np.array(climb["nodes"], np.int32),
            climb["score"],
            np.array(climb["returns"]),
            climb["neighbours"],
            climb["tried"],
        )


def _climb_state(climb: _Climb) -> dict[str, Any]:
    return {
        "nodes": climb.nodes.tolist(),
        "score": climb.score,
        "returns": climb.returns.tolist(),
        "neighbours": climb.neighbours,
        "tried": climb.tried,
    }
