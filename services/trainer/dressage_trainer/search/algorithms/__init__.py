"""Algorithms that propose parameter vectors, by name.

The candidates must not depend on how many are drawn at a time: then a search has the same result on any number of cores.
"""

from __future__ import annotations

from dressage.errors import InvalidArgument
from dressage.policies.kinds import PolicySpec

from dressage_trainer.search.algorithms.base import Algorithm, Space
from dressage_trainer.search.algorithms.hill_climb import HillClimb
from dressage_trainer.search.algorithms.random import RandomSearch

__all__ = ["ALGORITHMS", "MAX_REPLAYED", "Algorithm", "Space", "algorithm", "check_algorithm"]

ALGORITHMS = ("random", "hill_climb", "cma_es")
MAX_REPLAYED = 100_000
"""Candidates of `cma_es`, at most: a resume replays all of them."""


def check_algorithm(name: str, spec: PolicySpec, *, budget: int) -> None:
    """Check that an algorithm can search the parameters of such a policy.

    :raises InvalidArgument: if it cannot.
    """
    if name not in ALGORITHMS:
        expected = f"one of {', '.join(map(repr, ALGORITHMS))}"
        raise InvalidArgument(field="algorithm", value=name, expected=expected)
    if name != "cma_es":
        return
    space = Space.of(spec)
    if space.choices or space.size < 2:
        what = "a table of discrete actions has none" if space.choices else "this policy has one"
        expected = f"'hill_climb' or 'random': 'cma_es' searches two or more real numbers, and {what}"
        raise InvalidArgument(field="algorithm", value=name, expected=expected)
    if budget > MAX_REPLAYED:
        expected = f"at most {MAX_REPLAYED} candidates with 'cma_es'; use 'hill_climb' or 'random' for more"
        raise InvalidArgument(field="budget", value=budget, expected=expected)


def algorithm(
    name: str, spec: PolicySpec, *, seed: int, scale: float, limit: float = 0.0, step_size: float = 0.0
) -> Algorithm:
    """Return the algorithm of that name.

    :param seed: equal seeds give equal candidates.
    :param scale: standard deviation of the first candidates.
    :param limit: largest absolute value of a real parameter; 0: none.
    :param step_size: standard deviation of mutations; 0: that of ``scale``.
    :raises InvalidArgument: for an unknown one, or one that cannot search such a policy.
    """
    check_algorithm(name, spec, budget=0)
    match name:
        case "random":
            return RandomSearch(spec, seed=seed, scale=scale, limit=limit)
        case "hill_climb":
            return HillClimb(spec, seed=seed, scale=scale, limit=limit, step_size=step_size)
        case _:
            # Its import takes a second, which the other algorithms need not wait for.
            from dressage_trainer.search.algorithms.cma_es import CmaEs

            return CmaEs(spec, seed=seed, scale=scale, limit=limit)
