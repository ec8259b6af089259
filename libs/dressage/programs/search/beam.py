"""Cross-entropy beam search (CEBS) over programs, resumable at any program.

A generation draws neighbours of each of its parents, as many of each as of the others, and keeps the best distinct ones as
parents of the next. When their mean score no longer rises, the search begins again. This is the CEBS of Carvalho et al.
2024 (arXiv 2410.12166) with neighbours of programs in place of points near a latent vector. Candidate n draws from stream n
of the seed, as in `dressage.programs.search.climbing`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dressage.programs.engine.trees import Nodes
from dressage.programs.search.best import BestSoFar, Improvement
from dressage.programs.search.parallel import Scorers
from dressage.programs.search.settings import SearchSettings

_EMPTY: Nodes = np.zeros(0, np.int32)
_LOWEST = -1e300


@dataclass(frozen=True)
class _Elite:
    """An evaluated program."""

    nodes: Nodes
    score: float
    returns: NDArray[np.float64]


@dataclass
class _Generation:
    """Where a generation is."""

    parents: list[_Elite]
    mean: float
    """Mean score of the parents, which the next ones must exceed."""
    drawn: int = 0
    best: list[_Elite] = field(default_factory=list)
    """The best candidates so far, best first."""


class BeamSearch(BestSoFar):
    """One beam search.

    :param scorers: score the candidates.
    :param starts: parents of each first generation, of which the best are used; without any, one random program.
    :param on_improvement: called with each improvement, in order, in the thread that calls `run`.
    """

    def __init__(
        self,
        scorers: Scorers,
        settings: SearchSettings,
        starts: Sequence[Nodes] = (),
        on_improvement: Callable[[Improvement], None] | None = None,
    ) -> None:
        super().__init__(settings, on_improvement)
        self.begun = 0
        """How often the search began at random programs or at its starts."""
        self._scorers = scorers
        self._starts = [np.asarray(start, np.int32) for start in starts]
        self._scored: list[_Elite] = []
        self._generation: _Generation | None = None

    def run(self, until: int | None = None) -> None:
        """Search until it is finished, or ``until`` programs are evaluated."""
        end = self.settings.budget if until is None else min(until, self.settings.budget)
        while not self.solved and self.programs < end:
            if len(self._scored) < len(self._starts):
                self._score_start()
            elif self._generation is None:
                self._begin()
            else:
                self._draw(self._generation, end - self.programs)

    def _score_start(self) -> None:
        nodes = self._starts[len(self._scored)]
        self._scored.append(_Elite(nodes, *self._scorers.score(nodes)))
        self.programs += 1
        self._report(self._scored[-1].score, nodes)

    def _begin(self) -> None:
        if self._starts:
            parents = sorted(self._scored, key=lambda start: -start.score)[: self.settings.beam.elites]
        else:
            order = np.arange(self._scorers.variations)
            _, match = self._scorers.search(_EMPTY, self.settings.seed, self.programs, 1, _LOWEST, order)
            assert match is not None
            _, nodes, score, returns = match
            self.programs += 1
            self._report(score, nodes)
            parents = [_Elite(nodes, score, returns)]
        self._generation = _Generation(parents, _LOWEST)
        self.begun += 1

    def _draw(self, generation: _Generation, most: int) -> None:
        """Draw neighbours of one parent, up to the first that belongs to the best."""
        beam = self.settings.beam
        parent, left = _turn(generation.drawn, len(generation.parents), beam.candidates)
        elite = generation.parents[parent]
        limit = generation.best[-1].score if len(generation.best) == beam.elites else _LOWEST
        # Worst first, where candidates are given up soonest; stable, so that a repeated search has the same order.
        order = np.argsort(elite.returns, kind="stable")
        count, match = self._scorers.search(
            elite.nodes, self.settings.seed, self.programs, min(most, left), limit, order
        )
        self.programs += count
        generation.drawn += count
        if match is not None:
            _, nodes, score, returns = match
            self._report(score, nodes)
            _insert(generation.best, _Elite(nodes, score, returns), beam.elites)
        if generation.drawn == beam.candidates:
            mean = float(np.mean([elite.score for elite in generation.best]))
            self._generation = _Generation(generation.best, mean) if mean > generation.mean else None

    def state(self) -> dict[str, Any]:
        """Return what `restore` needs to continue, as JSON."""
        generation = self._generation
        return {
            **self._state_so_far(),
            "begun": self.begun,
            "starts": [_row(start) for start in self._scored],
            "generation": generation
            and {
                "parents": [_row(elite) for elite in generation.parents],
                "mean": generation.mean,
                "drawn": generation.drawn,
                "best": [_row(elite) for elite in generation.best],
            },
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from `state` of a search with the same settings, scorers and starts."""
        self._restore_so_far(state)
        self.begun, generation = state["begun"], state["generation"]
        self._scored = [_elite(row) for row in state["starts"]]
        self._generation = generation and _Generation(
            [_elite(row) for row in generation["parents"]],
            generation["mean"],
            generation["drawn"],
            [_elite(row) for row in generation["best"]],
        )


def _turn(drawn: int, parents: int, candidates: int) -> tuple[int, int]:
    """Return whose neighbour candidate ``drawn`` is, and how many of that parent are left; the first ones have one more."""
    each, more = divmod(candidates, parents)
    end = 0
    for parent in range(parents):
        end += each + (parent < more)
        if drawn < end:
            return parent, end - drawn
    raise AssertionError("a generation has no candidate left")


def _insert(best: list[_Elite], new: _Elite, most: int) -> None:
    """Insert a program behind those that are as good, unless it is there already."""
    if any(np.array_equal(elite.nodes, new.nodes) for elite in best):
        return
    place = next((i for i, elite in enumerate(best) if elite.score < new.score), len(best))
    best.insert(place, new)
    del best[most:]


def _row(elite: _Elite) -> dict[str, Any]:
    return {"nodes": elite.nodes.tolist(), "score": elite.score, "returns": elite.returns.tolist()}


def _elite(row: dict[str, Any]) -> _Elite:
    return _Elite(np.array(row["nodes"], np.int32), row["score"], np.array(row["returns"]))
