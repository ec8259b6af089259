"""Collects the evidence of a session's candidates from their assignments and recorded rollouts."""

from __future__ import annotations

from dressage.api.v1 import session_pb2 as v1

from dressage_orchestrator.lifecycle.context import SessionContext
from dressage_orchestrator.methods.parameters import evidence, rollouts
from dressage_orchestrator.methods.parameters.form import key_of
from dressage_orchestrator.methods.parameters.history import History, Trial
from dressage_orchestrator.methods.parameters.variants import Profile, Variant

_TITLES = {
    "median": "Median rollout",
    "nearest_mean": "Rollout whose return is closest to the mean",
    "worst": "Worst rollout",
    "best": "Best rollout",
    "first": "First rollout",
}


class Recorded:
    """Evidence of candidates. Texts of recorded rollouts do not change, so they are kept in memory."""

    def __init__(self, context: SessionContext, variant: Variant, profile: Profile) -> None:
        self._context, self._variant, self._profile = context, variant, profile
        self._excerpts: dict[tuple[int, int], str] = {}

    def of_candidate(
        self, number: int, trial: Trial, history: History, *, result: v1.CandidateResult | None = None
    ) -> str:
        """Return what the critic is shown of a candidate.

        :param number: iteration of the candidate.
        :param result: its result; None if it was played before.
        """
        result = result or self._result(number, trial) or self._earlier(trial, history)
        if result is None:
            return ""
        settings, parts = self._context.spec.parameters, {}
        if self._variant.statistics:
            optimum = settings.optimum if settings.HasField("optimum") else None
            parts["statistics"] = evidence.statistics(result.returns, result.lengths, optimum=optimum)
        ends = evidence.ENDS if len(self._variant.kept) > 1 else None
        for label in self._variant.kept:
            bound = ends or (evidence.ROLLOUT if self._profile.bounded else evidence.WHOLE)
            parts[label] = self._rollout(result, label, bound=bound, rewards=self._variant.rewards)
        return evidence.joined(parts)

    def latest(self, history: History) -> str:
        """Return a rollout of the candidate that the latest iteration kept; empty if there is none."""
        trial = history.latest
        if trial is None:
            return ""
        result = self._earlier(trial, history)
        bound = evidence.ROLLOUT if self._profile.bounded else evidence.WHOLE
        return "" if result is None else self._rollout(result, self._variant.trace, bound=bound, rewards=True)

    def excerpt(self, trial: Trial) -> str:
        """Return a candidate's rollout for the history; empty if there is none."""
        key = (trial.iteration, trial.number)
        if key not in self._excerpts:
            result = self._result(trial.iteration, trial)
            whole = not self._profile.bounded and self._variant.trace == rollouts.FIRST
            bound = evidence.WHOLE if whole else evidence.EXCERPT
            text = "" if result is None else self._rollout(result, self._variant.trace, bound=bound, rewards=False)
            self._excerpts[key] = text
        return self._excerpts[key]

    def _rollout(self, result: v1.CandidateResult, label: str, *, bound: evidence.Bound | None, rewards: bool) -> str:
        artifact = rollouts.labelled(result, label)
        trajectory = rollouts.load(self._context.engine.store, artifact) if artifact else None
        if trajectory is None:
            return ""
        observations = self._context.card.num_observations
        return evidence.rollout(
            trajectory, bound=bound, title=_TITLES[label], rewards=rewards, observations=observations
        )

    def _earlier(self, trial: Trial, history: History) -> v1.CandidateResult | None:
        """Return the result of the first evaluation of the same candidate."""
        first = history.evaluated(trial.values)
        return None if first is None else self._result(first.iteration, first)

    def _result(self, number: int, trial: Trial) -> v1.CandidateResult | None:
        """Return a candidate's result in the assignments of an iteration; rows of ended assignments do not change."""
        iteration = self._context.store.iteration(number)
        key = key_of(trial.values)
        for name in iteration.assignments:
            if name.rpartition("/")[2] not in ("first", "second"):
                continue
            row = self._context.store.assignment(name)
            for request, result in zip(row.work.evaluate.candidates, row.assignment.candidates, strict=False):
                if key_of(request.parameters.values) == key:
                    return result
        return None
