"""CMA-ES by the library ``cma``, with its own defaults, from mean 0.

Where a run of the library ends by its own criteria (it converged, or all candidates of a generation score alike), another one
starts from mean 0 with the next seed, until the budget is used. A limit is the library's bound of each number.

The library's state cannot be written as plain values. A state here is the list of all scores so far: from it and the seed, a
resume makes the same calls again, without playing an episode. Its random numbers are those that the library draws for the
same seed, but of a generator of its own.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
from dressage.errors import InvalidArgument
from dressage.policies.kinds import PolicySpec

from dressage_trainer.search.algorithms.base import Array, Generational, Space

DIAGONAL_ABOVE = 100
"""Parameters from which on the covariance matrix is diagonal: the cost of a full one grows with their cube."""
_WORST = 1e300


@contextmanager
def _without(*names: str) -> Iterator[None]:
    """Import without packages that are not loaded yet: the library uses them for plots and surrogates only, and they take
    most of its eight seconds of processor time."""
    absent = [name for name in names if name not in sys.modules]
    sys.modules.update(dict.fromkeys(absent))  # type: ignore[arg-type]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for name in absent:
            del sys.modules[name]


with _without("matplotlib", "scipy"):
    import cma


class CmaEs(Generational):
    """Adapts the covariance of its samples, and starts again with the next seed where a run converged.

    :param seed: equal seeds give equal candidates.
    :param scale: the first standard deviation.
    :param limit: largest absolute value of a number; 0: none.
    """

    def __init__(self, spec: PolicySpec, *, seed: int, scale: float, limit: float = 0.0) -> None:
        super().__init__()
        self._space, self._seed, self._scale = Space.of(spec, limit=limit), seed, scale
        self._start()

    def _start(self) -> None:
        self._history: list[float] = []
        self._runs = 0
        self._generation, self._scores, self._position = np.zeros((0, 0)), [], 0
        self._next_run()

    def _next_run(self) -> None:
        self._runs += 1
        options = options_of(self._space, library_seed(self._seed, self._runs))
        self._strategy = cma.CMAEvolutionStrategy(np.zeros(self._space.size), self._scale, options)

    def _draw(self) -> Array:
        if self._strategy.countiter and self._strategy.stop():
            self._next_run()
        self._solutions = self._strategy.ask()
        return self._space.to_policy_precision(np.array(self._solutions))

    def _learn(self, scores: list[float]) -> None:
        costs = -np.asarray(scores)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            # The library ranks by cost; one that is not finite would take the place of a number in its statistics.
            self._strategy.tell(self._solutions, np.where(np.isfinite(costs), costs, _WORST).tolist())
        self._history.extend(scores)

    def state(self) -> dict[str, Any]:
        partial = [] if len(self._scores) == len(self._generation) else self._scores
        return {"scores": [*self._history, *partial]}

    def restore(self, state: Mapping[str, Any]) -> None:
        try:
            scores = [float(score) for score in state["scores"]]
        except (KeyError, TypeError, ValueError) as error:
            raise InvalidArgument(f"the state of CMA-ES is damaged: {error!r}", field="state") from error
        self._start()
        done = 0
        while done < len(scores):
            count = len(self.ask(len(scores) - done))
            self.tell(scores[done : done + count])
            done += count


def library_seed(seed: int, run: int) -> int:
    """Return the library's seed, 1 to 2³² - 1, of a run of a search.

    :param seed: of the search.
    :param run: number of the run, from 1.
    """
    return max(1, int(np.random.SeedSequence([seed, run]).generate_state(1)[0]))


def options_of(space: Space, seed: int) -> dict[str, Any]:
    """Return the library's options; the others are its defaults.

    :param seed: see `library_seed`.
    """
    return {
        # NaN: the library must not seed the generator that the whole process shares.
        "seed": np.nan,
        "randn": np.random.RandomState(seed).randn,
        "bounds": [-space.limit, space.limit] if space.limit else [None, None],
        "CMA_diagonal": space.size > DIAGONAL_ABOVE,
        # Quiet, and no options from a file of the working directory.
        "verbose": -10,
        "signals_filename": "",
    }
