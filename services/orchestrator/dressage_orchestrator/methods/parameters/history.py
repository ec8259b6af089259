"""The candidates that a session has evaluated, read from its iterations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dressage.api.v1 import session_pb2 as v1

from dressage_orchestrator.methods.parameters.form import Values, key_of

WARMUP, SEARCH, CRITIC = "warmup", "search", "critic"
"""Origins of candidates."""
LIMIT = 1000
"""Candidates of a history, at most; older ones are left out."""


@dataclass(frozen=True)
class Trial:
    """An evaluated candidate.

    :param iteration: number of its iteration.
    :param number: number of the candidate in its iteration, from 1.
    :param is_kept: whether the iteration kept it.
    """

    values: Values
    mean: float
    returns: tuple[float, ...]
    iteration: int
    number: int
    origin: str
    is_kept: bool


@dataclass(frozen=True)
class History:
    """Evaluated candidates in order, random ones first."""

    trials: Sequence[Trial]

    def find(self, values: Values) -> Trial | None:
        """Return the first evaluation of the same candidate over all episodes; None if there is none."""
        key = key_of(values)
        return next((trial for trial in self.trials if trial.origin != WARMUP and key_of(trial.values) == key), None)

    def prompt_trials(self, *, losers: bool, until: int = 0) -> list[Trial]:
        """Return the candidates that prompts show.

        :param losers: whether candidates that their iteration did not keep are shown.
        :param until: last iteration that is shown; 0: all.
        """
        chosen = [
            trial
            for trial in self.trials
            if (trial.origin == WARMUP or losers or trial.is_kept) and (not until or trial.iteration <= until)
        ]
        return chosen[-LIMIT:]

    @property
    def latest(self) -> Trial | None:
        """The candidate that the latest iteration kept; None before the first."""
        return next((trial for trial in reversed(self.trials) if trial.is_kept), None)


def read(iterations: Sequence[v1.Iteration], *, before: int) -> History:
    """Return the history before an iteration; with its own random candidates, which are evaluated first."""
    trials: list[Trial] = []
    for iteration in iterations:
        if iteration.number <= before:
            chosen = iteration.parameters.chosen
            for number, candidate in enumerate(iteration.parameters.candidates, start=1):
                if candidate.returns and (iteration.number < before or candidate.origin == WARMUP):
                    trials.append(_trial(iteration.number, number, candidate, is_kept=number == chosen))
    return History(trials)


def _trial(iteration: int, number: int, candidate: v1.ParameterCandidate, *, is_kept: bool) -> Trial:
    return Trial(
        values=tuple(candidate.values),
        mean=candidate.mean_return,
        returns=tuple(candidate.returns),
        iteration=iteration,
        number=number,
        origin=candidate.origin,
        is_kept=is_kept,
    )
