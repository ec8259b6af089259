"""The evaluation of a round: all candidates on the same seeds in one assignment, repairs, and the round's record."""

from __future__ import annotations

import difflib
import math
from collections.abc import Sequence
from dataclasses import replace

from dressage.api.internal.v1 import run_service_pb2 as work
from dressage.api.v1 import session_pb2 as v1
from dressage.errors import FailedPrecondition

from dressage_orchestrator import resource_names
from dressage_orchestrator.database.assignments import AssignmentRow
from dressage_orchestrator.lifecycle import assignments, budget, report
from dressage_orchestrator.lifecycle.context import Json, SessionContext
from dressage_orchestrator.methods.code import checking
from dressage_orchestrator.methods.code import spec as settings
from dressage_orchestrator.methods.code.candidates import (
    Candidate,
    as_json,
    best_of,
    digest,
    from_json,
    from_message,
    unplayed_sources,
    with_duplicates,
)
from dressage_orchestrator.methods.code.feedback import FeedbackClass

_MAX_DIFF_LINES = 400


def seeds_of(spec: v1.SessionSpec, number: int) -> list[int]:
    """Return the seeds of a round: the same for all its candidates, others in each round unless they are fixed."""
    return report.search_seeds(spec, spec.code.episodes, block=number - 1 if spec.code.rotate_seeds else 0)


def evaluate(
    context: SessionContext, number: int, candidates: Sequence[Candidate], feedback: FeedbackClass, *, tag: str
) -> list[Candidate]:
    """Play a round's candidates; repair those that fail, check them again and play them.

    :param tag: distinguishes the steps of this proposal from those of others in the iteration.
    :raises Exhausted: when a budget is exhausted.
    :raises FailedPrecondition: when the trainer fails for a reason that is not a candidate's.
    """
    current, turn = list(candidates), 0
    while True:
        current = _play(context, number, current, feedback, tag=f"{tag}:{turn}")
        broken = [i for i, entry in enumerate(current) if entry.repairable(context.spec.code.repairs)]
        current, fresh = checking.repair_candidates(context, number, current, broken, tag=f"{tag}:played:{turn}")
        if not fresh:
            return current
        current = checking.pass_checks(context, number, current, fresh, tag=f"{tag}:played:{turn + 1}")
        turn += 1


def _play(
    context: SessionContext, number: int, candidates: Sequence[Candidate], feedback: FeedbackClass, *, tag: str
) -> list[Candidate]:
    """Return the candidates with the results of an assignment; sources with a result are not played again."""
    seeds = seeds_of(context.spec, number)
    by_source = {entry.source: entry for entry in candidates if not entry.playable and entry.source}
    # Rounds with other seeds are not comparable (decision 0043).
    if not context.spec.code.rotate_seeds:
        earlier = from_json(context.step(f"known:{tag}", lambda: _earlier_results(context, number)))
        by_source = {entry.source: entry for entry in earlier} | by_source
    current = with_duplicates(candidates, by_source)
    sources = unplayed_sources(current)
    if sources:
        context.step(f"budget:{tag}", lambda: _check_budget(context, len(sources) * len(seeds)))
        row = _assign(context, number, sources, seeds, feedback.source(number))
        results = dict(zip(sources, _results(row), strict=True))
        current = _with_results(current, results)
        feedback.review(number, [entry for entry in row.assignment.candidates if entry.HasField("feedback_failure")])
        count_played(context, row)
    hits = sum(1 for before, after in zip(candidates, current, strict=True) if after.duplicate and not before.duplicate)
    if hits:
        context.step(f"cached:{tag}", lambda: report.count(context, evaluated=0, episodes=0, cache_hits=hits, key=tag))
    return current


def count_played(context: SessionContext, row: AssignmentRow) -> None:
    """Count the candidates and episodes of an assignment, once in the session."""
    played = row.assignment.candidates
    episodes = sum(len(entry.returns) for entry in played)

    def count() -> None:
        # Across epochs: a resumed session finds the ended assignment again (decision 0043).
        report.count(context, evaluated=len(played), episodes=episodes, cache_hits=0, key=row.name, across_epochs=True)

    context.step(f"count:{row.name}", count)


def _earlier_results(context: SessionContext, number: int) -> Json:
    """Return the successful candidates of earlier rounds on the same seeds."""
    played = []
    for entry in context.store.iterations():
        for candidate in entry.code.candidates if entry.number < number else ():
            if candidate.HasField("mean_return"):
                played.append(from_message(candidate, author=entry.author))
    return as_json(played)


def _check_budget(context: SessionContext, episodes: int) -> None:
    needed = episodes * settings.horizon(context.spec)
    budget.require(context.store.get(), now=context.store.now(), next_env_steps=needed)


def _assign(
    context: SessionContext, number: int, sources: Sequence[str], seeds: Sequence[int], feedback: str
) -> AssignmentRow:
    """Evaluate sources on seeds. The name is derived from the content, so that an ended assignment is used again."""
    task = work.EvaluateAssignment(environment=context.environment, seeds=seeds, feedback_source=feedback)
    task.options.CopyFrom(context.spec.environment_options)
    task.code_limits.CopyFrom(limits(context.spec))
    for place, source in enumerate(sources, start=1):
        task.candidates.add(id=f"c{place}", code=source)
    ident = "round-" + digest(*sources, *map(str, seeds))
    return assignments.wait(context, assignments.assign(context, number, ident, work.Assignment(evaluate=task)))


def limits(spec: v1.SessionSpec) -> work.CodeLimits:
    """Return the limits of candidates."""
    code = spec.code
    return work.CodeLimits(
        act_seconds=code.act_seconds, episode_seconds=code.episode_seconds, candidate_seconds=code.candidate_seconds
    )


def _results(row: AssignmentRow) -> list[v1.CandidateResult]:
    """Return the results in the order of the candidates.

    :raises FailedPrecondition: when the assignment failed.
    """
    if row.assignment.state != v1.ASSIGNMENT_STATE_SUCCEEDED:
        failure = row.assignment.failure
        metadata = {"assignment": row.name, "remedy": failure.remedy}
        message = f"the evaluation failed: {failure.message}"
        raise FailedPrecondition(message, reason=failure.reason or "EVALUATION_FAILED", metadata=metadata)
    return list(row.assignment.candidates)


def _with_results(candidates: Sequence[Candidate], results: dict[str, v1.CandidateResult]) -> list[Candidate]:
    """Return candidates with results; the second and later ones of the same source are duplicates."""
    current = list(candidates)
    for index, candidate in enumerate(current):
        if candidate.playable and candidate.source in results:
            current[index] = with_result(candidate, results.pop(candidate.source))
            by_source = {candidate.source: current[index]}
            current[index + 1 :] = with_duplicates(current[index + 1 :], by_source)
    return current


def with_result(candidate: Candidate, result: v1.CandidateResult) -> Candidate:
    """Return a candidate with the result of its evaluation."""
    if result.HasField("failure"):
        return candidate.with_failure(result.failure.reason, result.failure.message, result.failure.remedy)
    if not result.returns or not all(math.isfinite(value) for value in result.returns):
        return candidate.with_failure(
            "NO_FINITE_RETURN", f"the returns are {list(result.returns)}; expected finite numbers"
        )
    return replace(
        candidate, returns=tuple(result.returns), feedback=tuple(result.feedback), act_seconds=result.act_seconds
    )


def record_proposal(context: SessionContext, number: int, candidates: Sequence[Candidate]) -> None:
    """Record a round's candidates before their evaluation, and write their files. In a step."""
    changes = v1.Iteration(repairs=sum(entry.repairs for entry in candidates))
    changes.code.candidates.extend(entry.message() for entry in candidates)
    context.store.update_iteration(number, changes, ["code.candidates", "repairs"])
    for place, entry in enumerate(candidates, start=1):
        context.put_text(number, f"candidates/{place}.py", entry.source)


def record_results(context: SessionContext, number: int, candidates: Sequence[Candidate]) -> None:
    """Record a round's results, its best policy and its score. In a step."""
    chosen = best_of(candidates)
    before = context.store.iteration(number)
    changes = v1.Iteration(repairs=sum(entry.repairs for entry in candidates))
    code = changes.code
    code.candidates.extend(entry.message() for entry in candidates)
    code.episodes = sum(len(entry.returns) for entry in candidates if not entry.duplicate)
    paths = ["code.candidates", "code.episodes", "code.chosen", "code.source", "repairs"]
    if chosen is not None:
        code.chosen, code.source = chosen + 1, candidates[chosen].source
        context.put_text(number, "policy.py", code.source)
        if before.parent:
            parent = context.store.iteration(resource_names.parse_iteration(before.parent)[1])
            changes.diff = _diff(parent.code.source, code.source)
            paths.append("diff")
    context.store.update_iteration(number, changes, paths)
    for place, entry in enumerate(candidates, start=1):
        context.put_text(number, f"candidates/{place}.py", entry.source)
    if chosen is not None:
        context.store.record_score(number, candidates[chosen].score)
        return
    failure = next((entry.failure for entry in candidates if entry.failure is not None), None)
    message = f"all candidates of round {number} failed" + (f"; the first one: {failure.message}" if failure else "")
    context.store.warn("ALL_CANDIDATES_FAILED", message[:1000], iteration=number, key=f"failed:{number}")


def _diff(before: str, after: str) -> str:
    lines = list(difflib.unified_diff(before.splitlines(), after.splitlines(), "parent", "policy", lineterm="", n=2))
    return "\n".join(lines[:_MAX_DIFF_LINES])
