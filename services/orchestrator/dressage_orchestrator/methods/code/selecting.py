"""The choice among the winners of rounds, and its score on report seeds.

Round winners were chosen on few episodes each, so that their scores are too high, and in rounds with other seeds they are not
comparable. All are played again on the same selection seeds, which no round uses, and the best one is played on report seeds.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from dressage.api.internal.v1 import run_service_pb2 as work
from dressage.api.v1 import session_pb2 as v1
from dressage.errors import FailedPrecondition

from dressage_orchestrator.lifecycle import assignments, report
from dressage_orchestrator.lifecycle.context import Json, SessionContext
from dressage_orchestrator.methods.code import spec as settings
from dressage_orchestrator.methods.code.candidates import FAILED_SCORE, Candidate, digest
from dressage_orchestrator.methods.code.evaluating import count_played, limits, with_result

_MAX_CONTENDERS = 10
_REPORT = "report-"


@dataclass(frozen=True)
class Contender:
    """The best policy of a round.

    :param score: mean return in its round.
    """

    number: int
    source: str
    score: float


def contenders(context: SessionContext) -> list[Contender]:
    """Return the policies among which the session's best is chosen: that of the round that passed, else of the profile.

    :raises FailedPrecondition: when candidates were evaluated and all failed.
    """
    deliver_last = settings.profile_of(context.spec).deliver_last
    rounds = context.step("contenders", lambda: _read_rounds(context))
    return choose([Contender(**entry) for entry in rounds["winners"]], rounds["passed"], deliver_last=deliver_last)


def choose(winners: Sequence[Contender], passed: Sequence[int], *, deliver_last: bool) -> list[Contender]:
    """Return the winners to compare. Pure.

    :param winners: of all rounds, in order.
    :param passed: numbers of the rounds that passed.
    :param deliver_last: whether the last one is delivered.
    """
    if passed:
        return [entry for entry in winners if entry.number == passed[-1]]
    if deliver_last:
        return list(winners[-1:])
    distinct: dict[str, Contender] = {}
    for entry in winners:
        same = distinct.get(entry.source)
        if same is None or entry.score > same.score:
            distinct[entry.source] = entry
    return sorted(distinct.values(), key=lambda entry: (-entry.score, entry.number))[:_MAX_CONTENDERS]


def _read_rounds(context: SessionContext) -> Json:
    rounds = [entry for entry in context.store.iterations() if entry.code.candidates]
    winners = [
        {"number": entry.number, "source": entry.code.source, "score": entry.score}
        for entry in rounds
        if entry.code.chosen and entry.HasField("score")
    ]
    ended = [entry for entry in rounds if _all_failed(entry.code)]
    if ended and not winners:
        failures = [candidate.failure for entry in ended for candidate in entry.code.candidates]
        rounds_text = "the only round" if len(ended) == 1 else f"{len(ended)} rounds"
        message = f"no policy of {rounds_text} could be played; the last failure: {failures[-1].message.rstrip('.')}"
        others = "use another model, more candidates, or a policy of your own as policy_source"
        own = "correct the policy of policy_source"
        remedy = failures[-1].remedy or (own if context.spec.code.policy_source else others)
        raise FailedPrecondition(message, reason="NO_POLICY", metadata={"remedy": remedy})
    return {"winners": winners, "passed": [entry.number for entry in rounds if entry.passed]}


def _all_failed(code: v1.CodeProposal) -> bool:
    """Whether no candidate of a round can be played; false for a round that was interrupted before its evaluation."""
    return all(candidate.HasField("failure") for candidate in code.candidates)


def select(context: SessionContext, candidates: Sequence[Contender]) -> tuple[Contender, float]:
    """Return the contender with the highest mean return on selection seeds, and this mean.

    The wall-clock budget does not limit it, as it does not limit the report.

    :raises FailedPrecondition: when none can be played.
    """
    names = [_start(context, entry) for entry in candidates]
    rows = [assignments.wait(context, name, within_wall_time=False) for name in names]
    scores = []
    for entry, row in zip(candidates, rows, strict=True):
        played = Candidate(entry.source, "")
        results = row.assignment.candidates if row.assignment.state == v1.ASSIGNMENT_STATE_SUCCEEDED else []
        scores.append(with_result(played, results[0]).score if results else FAILED_SCORE)
        count_played(context, row)
    best = max(range(len(scores)), key=lambda index: (scores[index], -index))
    if scores[best] == FAILED_SCORE:
        message = "no policy could be played on selection seeds"
        raise FailedPrecondition(message, reason="SELECTION_FAILED")
    return candidates[best], scores[best]


def _start(context: SessionContext, entry: Contender) -> str:
    """Start a contender's episodes on selection seeds, in its own iteration; those that were played are used again."""
    seeds = settings.selection_seeds()
    task = work.EvaluateAssignment(environment=context.environment, seeds=seeds)
    task.options.CopyFrom(context.spec.environment_options)
    task.code_limits.CopyFrom(limits(context.spec))
    task.candidates.add(id="best", code=entry.source)
    ident = "select-" + digest(entry.source)
    return assignments.assign(context, entry.number, ident, work.Assignment(evaluate=task))


def play_report(context: SessionContext, entry: Contender) -> float:
    """Play a contender on report seeds, store its bundle, and record the report; returns its mean return.

    :raises FailedPrecondition: when it cannot be played.
    """
    ident = _REPORT + digest(entry.source)
    confirmations = context.step(f"confirmations:{entry.number}:{ident}", lambda: _confirmations(context, entry, ident))
    provenance = {
        "intent": context.spec.intent,
        "iteration": context.iteration_name(entry.number),
        "policy_sha256": hashlib.sha256(entry.source.encode()).hexdigest(),
    }
    score, _ = report.play(
        context,
        entry.number,
        work.Candidate(code=entry.source),
        ident=ident,
        limits=limits(context.spec),
        episodes=context.spec.code.report_episodes,
        confirmations=confirmations,
        provenance=provenance,
    )
    return score.mean


def _confirmations(context: SessionContext, entry: Contender, ident: str) -> int:
    """Return the number of policies that were played on report seeds, this one included."""
    names = {name for iteration in context.store.iterations() for name in iteration.assignments}
    names.add(f"{context.iteration_name(entry.number)}/assignments/{ident}")
    return sum(1 for name in names if name.rpartition("/")[2].startswith(_REPORT))


def last_report(context: SessionContext, number: int) -> v1.Assignment | None:
    """Return the newest successful report assignment of an iteration; None if there is none. In a step."""
    names = [
        name for name in context.store.iteration(number).assignments if name.rpartition("/")[2].startswith(_REPORT)
    ]
    rows = [context.store.assignment(name).assignment for name in names]
    done = [row for row in rows if row.state == v1.ASSIGNMENT_STATE_SUCCEEDED and row.candidates]
    return done[-1] if done else None
