"""Earlier rounds as prompts show them. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from dressage.api.internal.v1 import agent_service_pb2 as agent_pb
from dressage.api.v1 import session_pb2 as v1

from dressage_orchestrator.methods.code.candidates import FAILED_SCORE

_MAX_SOURCES = 12
"""Rounds whose best source is shown: the best ones and the latest."""
_MAX_TRIALS = 300
_MAX_FAILURE = 2_000


def score_of(candidate: v1.CodeCandidate) -> float:
    """Return the mean return of a recorded candidate; lower than any return if it failed."""
    return candidate.mean_return if candidate.HasField("mean_return") else FAILED_SCORE


def trials(rounds: Sequence[v1.Iteration], *, show_losers: bool) -> list[agent_pb.PolicyTrial]:
    """Return the candidates of earlier rounds in order, the oldest round first.

    The best candidate of a round has its source; so has the first candidate of a round in which all failed.

    :param show_losers: whether the others are listed with their results.
    """
    with_source = _rounds_with_source(rounds)
    listed: list[agent_pb.PolicyTrial] = []
    for entry in rounds:
        code = entry.code
        shown = code.chosen - 1 if code.chosen else 0
        for index, candidate in enumerate(code.candidates):
            if index != shown and not show_losers:
                continue
            trial = agent_pb.PolicyTrial(round=entry.number, returns=candidate.returns)
            trial.best_of_round = bool(code.chosen) and index == shown
            if candidate.HasField("failure"):
                trial.failure = f"{candidate.failure.reason}: {candidate.failure.message}"[:_MAX_FAILURE]
            if index == shown:
                trial.feedback.extend(candidate.feedback)
                trial.reflection = code.reflection
                trial.source = candidate.source if entry.number in with_source else ""
            listed.append(trial)
    return listed[-_MAX_TRIALS:]


def _rounds_with_source(rounds: Sequence[v1.Iteration]) -> set[int]:
    """Return the numbers of the rounds whose best source is shown."""
    half = _MAX_SOURCES // 2
    latest = [entry.number for entry in rounds[-half:]]
    ranked = sorted(rounds, key=lambda entry: (entry.score if entry.HasField("score") else FAILED_SCORE, entry.number))
    best = [entry.number for entry in reversed(ranked) if entry.number not in latest][: _MAX_SOURCES - len(latest)]
    return {*latest, *best}
