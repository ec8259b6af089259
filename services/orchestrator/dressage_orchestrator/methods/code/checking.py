"""The check of candidates in the sandbox, and their repairs by the fixer, in turns of concurrent calls."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Collection, Sequence
from dataclasses import replace

from dressage.api.internal.v1 import agent_service_pb2 as agent_pb
from dressage.api.internal.v1 import judge_service_pb2 as judge_pb
from dressage.api.v1 import event_pb2 as ev
from dressage.errors import DressageError, InvalidArgument

from dressage_orchestrator.clients import all_of
from dressage_orchestrator.lifecycle import outages
from dressage_orchestrator.lifecycle.context import Json, SessionContext
from dressage_orchestrator.lifecycle.conversations import brief, key_of, replies
from dressage_orchestrator.methods.code.candidates import Candidate, as_json, from_json

REJECTED = "POLICY_REJECTED"
"""Reason of a candidate that fails its check."""
_CONCURRENT_CHECKS = 4
_MAX_SHOWN_FAILURES = 5


def pass_checks(
    context: SessionContext, number: int, candidates: Sequence[Candidate], fresh: Collection[int], *, tag: str
) -> list[Candidate]:
    """Check candidates; repair those that fail and check them again, until they pass or their repairs are used.

    :param fresh: indices of the candidates to check.
    :param tag: distinguishes this call's steps from those of other calls in the iteration.
    """
    current, turn = list(candidates), 0
    while fresh:
        current = _check(context, number, current, sorted(fresh), tag=f"{tag}:{turn}")
        fresh = [index for index in fresh if current[index].repairable(context.spec.code.repairs)]
        current, fresh = repair_candidates(context, number, current, fresh, tag=f"{tag}:{turn}")
        turn += 1
    return current


def repair_candidates(
    context: SessionContext, number: int, candidates: Sequence[Candidate], broken: Sequence[int], *, tag: str
) -> tuple[list[Candidate], list[int]]:
    """Let the fixer repair failed candidates once, concurrently.

    :param broken: indices of the candidates.
    :return: all candidates, and the indices of those that have to be checked.
    """
    if not broken:
        return list(candidates), []
    fixed = from_json(
        context.step(f"fix:{tag}", lambda: _fix(context, number, [candidates[i] for i in broken], broken))
    )
    current = list(candidates)
    for index, candidate in zip(broken, fixed, strict=True):
        current[index] = candidate
    return current, [index for index in broken if current[index].playable]


def _fix(context: SessionContext, number: int, broken: Sequence[Candidate], indices: Sequence[int]) -> Json:
    requests = []
    for index, candidate in zip(indices, broken, strict=True):
        assert candidate.failure is not None
        fixer = agent_pb.FixerTask(brief=brief(context), subject="policy", source=candidate.source)
        fixer.round = candidate.repairs + 1
        fixer.earlier_explanations.extend(candidate.explanations)
        fixer.failures.add(rule=candidate.failure.reason.lower(), message=candidate.failure.message)
        key = f"iterations/{number}/policy_fixer/{index + 1}/{candidate.repairs + 1}"
        requests.append(agent_pb.Task(key=key_of(context, key), fixer=fixer))
    answers = replies(context, number, requests)
    return as_json([_with_fix(candidate, answer) for candidate, answer in zip(broken, answers, strict=True)])


def _with_fix(candidate: Candidate, answer: agent_pb.TaskResult | DressageError) -> Candidate:
    if isinstance(answer, DressageError):
        return replace(candidate, unrepairable=True)  # its own failure is more useful than the fixer's
    explanations = (*candidate.explanations, answer.fixed.explanation)
    source = answer.fixed.source
    return replace(candidate, source=source, repairs=candidate.repairs + 1, explanations=explanations, failure=None)


def _check(
    context: SessionContext, number: int, candidates: Sequence[Candidate], fresh: Sequence[int], *, tag: str
) -> list[Candidate]:
    """Return all candidates, those with a failure that fail the check."""

    def check() -> Json:
        reports = context.call(
            _reports(context, number, [candidates[index].source for index in fresh]), seconds=math.inf
        )
        results = []
        for index, report in zip(fresh, reports, strict=True):
            finished = ev.CheckFinished(subject="policy", ok=report.ok, failures=report.failures)
            context.store.emit(ev.Event(check_finished=finished), iteration=number, key=f"checked/{tag}/{index + 1}")
            candidate = candidates[index]
            results.append(candidate if report.ok else candidate.with_failure(REJECTED, failure_lines(report.failures)))
        return as_json(results)

    current = list(candidates)
    for index, candidate in zip(fresh, from_json(context.step(f"check:{tag}", check)), strict=True):
        current[index] = candidate
    return current


async def _reports(context: SessionContext, number: int, sources: Sequence[str]) -> list[judge_pb.CheckResponse]:
    """Check sources concurrently; a source that the judge does not accept has a report with a failure.

    :raises DressageError: when the judge is not available.
    """
    slots = asyncio.Semaphore(_CONCURRENT_CHECKS)
    session = context.store.get()

    async def check(source: str) -> judge_pb.CheckResponse:
        request = judge_pb.CheckRequest(environment=context.environment, policy_source=source)
        request.act_seconds = context.spec.code.act_seconds
        async with slots:
            return await outages.patiently(context, number, session, lambda: context.engine.judge.check(request))

    reports = []
    for answer in await all_of(*(check(source) for source in sources)):
        if isinstance(answer, InvalidArgument):
            failure = ev.CheckFailure(rule="request", message=answer.message)
            answer = judge_pb.CheckResponse(failures=[failure])
        if isinstance(answer, DressageError):
            raise answer
        reports.append(answer)
    return reports


def failure_lines(failures: Sequence[ev.CheckFailure]) -> str:
    """Return the first failures of a check, one a line."""
    more = [f"and {len(failures) - _MAX_SHOWN_FAILURES} more"] if len(failures) > _MAX_SHOWN_FAILURES else []
    return "\n".join([*map(_line, failures[:_MAX_SHOWN_FAILURES]), *more])


def _line(failure: ev.CheckFailure) -> str:
    line = f" (line {failure.line})" if failure.line else ""
    evidence = f"; seen: {failure.seen}" if failure.seen else ""
    message = failure.message.rstrip(".") if evidence else failure.message
    return f"{failure.rule}{line}: {message}{evidence}"
