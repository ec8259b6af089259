"""Cross-entropy search in a latent space of programs, resumable at any program.

A generation decodes points around its centres, ``deviation`` times a standard normal away from them, and keeps the best
ones. The cross-entropy method (CEM; Trivedi et al. 2021) continues around their mean, cross-entropy beam search (CEBS;
Carvalho et al. 2024) around each of them. When their mean score no longer rises, the search begins again at a standard
normal point. Generation n draws from stream n of the seed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from dressage.errors import InvalidArgument
from dressage.programs.engine.trees import Nodes
from dressage.programs.search.best import BestSoFar, Improvement
from dressage.programs.search.parallel import Scorers
from dressage.programs.search.settings import SearchSettings

Floats = NDArray[np.float32]


class LatentSpace(Protocol):
    """Encodes and decodes programs; see `dressage.programs.latent.autoencoder.Autoencoder`."""

    size: int

    def encode(self, programs: Sequence[Nodes]) -> Floats:
        """Return the points [P, size] of programs."""

    def decode(self, latent: Floats) -> list[Nodes]:
        """Return the programs of points [P, size]."""


@dataclass
class _Generation:
    """Where a generation is."""

    number: int
    centres: Floats
    mean: float | None
    """Mean score of the best of the generation before, which the next ones must exceed; None: the first generation."""
    scores: list[float] = field(default_factory=list)


class LatentSearch(BestSoFar):
    """One search in a latent space.

    :param scorers: score the candidates.
    :param space: the latent space.
    :param starts: programs whose points are the first centres, in turn; without any, random points. A program that the space
        lacks is only scored.
    :param on_improvement: called with each improvement, in order, in the thread that calls `run`.
    """

    def __init__(
        self,
        scorers: Scorers,
        settings: SearchSettings,
        space: LatentSpace,
        starts: Sequence[Nodes] = (),
        on_improvement: Callable[[Improvement], None] | None = None,
    ) -> None:
        super().__init__(settings, on_improvement)
        self.begun = 0
        """How often the search began at a first centre."""
        self._scorers, self._space = scorers, space
        self._starts = [np.asarray(start, np.int32) for start in starts]
        self._first_centres = _centres(space, self._starts)
        self._scored = 0
        self._generations = 0
        self._generation: _Generation | None = None
        self._decoded: tuple[int, Floats, list[Nodes]] | None = None

    def run(self, until: int | None = None) -> None:
        """Search until it is finished, or ``until`` programs are evaluated."""
        end = self.settings.budget if until is None else min(until, self.settings.budget)
        while not self.solved and self.programs < end:
            if self._scored < len(self._starts):
                self._evaluate(self._starts[self._scored : self._scored + 1])
                self._scored += 1
            elif self._generation is None:
                self._begin()
            else:
                self._continue(self._generation, end - self.programs)

    def _begin(self) -> None:
        if self._first_centres:
            centre = self._first_centres[self.begun % len(self._first_centres)]
        else:
            centre = self._normal(self._generations, 1)
            self._generations += 1
        self._next(centre, None)
        self.begun += 1

    def _next(self, centres: Floats, mean: float | None) -> None:
        self._generation = _Generation(self._generations, centres, mean)
        self._generations += 1

    def _normal(self, number: int, count: int) -> Floats:
        stream = np.random.Philox(key=self.settings.seed, counter=[0, 0, 0, number])
        return np.random.Generator(stream).standard_normal((count, self._space.size), dtype=np.float32)

    def _candidates(self, generation: _Generation) -> tuple[Floats, list[Nodes]]:
        """Return the points and the programs of a generation, always decoded in one batch."""
        if self._decoded is None or self._decoded[0] != generation.number:
            latent = self.settings.latent
            each, more = divmod(latent.candidates, len(generation.centres))
            counts = [each + (i < more) for i in range(len(generation.centres))]
            noise = self._normal(generation.number, latent.candidates)
            points = np.repeat(generation.centres, counts, axis=0) + np.float32(latent.deviation) * noise
            self._decoded = generation.number, points, self._space.decode(points)
        return self._decoded[1:]

    def _continue(self, generation: _Generation, most: int) -> None:
        points, programs = self._candidates(generation)
        done = len(generation.scores)
        generation.scores += self._evaluate(programs[done : done + most])
        if self.solved or len(generation.scores) < len(programs):
            return
        elites = np.argsort(-np.array(generation.scores), kind="stable")[: self.settings.latent.elites]
        mean = float(np.mean([generation.scores[i] for i in elites]))
        if generation.mean is not None and mean <= generation.mean:
            self._generation = None
            return
        best = points[elites]
        self._next(best if self.settings.algorithm == "latent-cebs" else best.mean(axis=0, keepdims=True), mean)

    def _evaluate(self, programs: Sequence[Nodes]) -> list[float]:
        """Score programs in their order, up to the first that reaches the target."""
        scores = []
        for nodes, score in zip(programs, self._scorers.score_all(programs), strict=True):
            self.programs += 1
            scores.append(float(score))
            self._report(scores[-1], nodes)
            if self.solved:
                break
        return scores

    def state(self) -> dict[str, Any]:
        """Return what `restore` needs to continue, as JSON."""
        generation = self._generation
        return {
            **self._state_so_far(),
            "begun": self.begun,
            "scored": self._scored,
            "generations": self._generations,
            "generation": generation
            and {
                "number": generation.number,
                "centres": generation.centres.tolist(),
                "mean": generation.mean,
                "scores": list(generation.scores),
            },
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from `state` of a search with the same settings, scorers, space and starts."""
        self._restore_so_far(state)
        self.begun, self._scored, self._generations = state["begun"], state["scored"], state["generations"]
        row = state["generation"]
        self._generation = row and _Generation(
            row["number"], np.array(row["centres"], np.float32), row["mean"], list(row["scores"])
        )


def _centres(space: LatentSpace, starts: Sequence[Nodes]) -> list[Floats]:
    """Return the points of those programs that the space has."""
    centres = []
    for start in starts:
        with contextlib.suppress(InvalidArgument):
            centres.append(space.encode([start]))
    return centres
