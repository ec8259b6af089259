"""The candidates of a round: a person's policy, or a reflection and a call of the author for each, who reads earlier ones."""

from __future__ import annotations

from collections.abc import Sequence

from dressage.api.internal.v1 import agent_service_pb2 as agent_pb
from dressage.api.v1 import session_pb2 as v1
from dressage.errors import DressageError, FailedPrecondition

from dressage_orchestrator.lifecycle.context import Json, SessionContext
from dressage_orchestrator.lifecycle.conversations import NO_REPLY, brief, key_of, replies
from dressage_orchestrator.lifecycle.outcome import Exhausted
from dressage_orchestrator.lifecycle.steering import Directions
from dressage_orchestrator.methods.code import spec as settings
from dressage_orchestrator.methods.code.candidates import FAILED_SCORE, Candidate, as_json, from_json, sections
from dressage_orchestrator.models import USER


def candidates_of(text: str) -> list[Candidate]:
    """Return a person's policies."""
    return [Candidate(source, USER) for _, source in sorted(sections(text).items())]


def write(context: SessionContext, number: int, directions: Directions) -> list[Candidate]:
    """Return the author's candidates for a round.

    :raises Exhausted: when the author has no further policies, or a budget is exhausted.
    """
    # A step of its own: the tasks must not change between a crash and the repetition of the calls.
    task = context.message_step(
        f"brief:{number}", agent_pb.PolicyAuthorTask, lambda: _task(context, number, directions)
    )
    if task.history and context.spec.code.reflection:
        task.reflection = context.step(f"reflect:{number}", lambda: _reflect(context, number, task))
    return from_json(context.step(f"author:{number}", lambda: _author(context, number, task)))


def _task(context: SessionContext, number: int, directions: Directions) -> agent_pb.PolicyAuthorTask:
    """Return the task of all candidates of a round, without the reflection and the candidate's number."""
    spec = context.spec
    earlier = [entry for entry in context.store.iterations() if entry.number < number and entry.code.candidates]
    task = agent_pb.PolicyAuthorTask(brief=brief(context), horizon=settings.horizon(spec), round=number, candidate=1)
    task.history.extend(trials(earlier, show_losers=settings.profile_of(spec).show_losers))
    task.target, task.act_seconds = settings.target(spec), spec.code.act_seconds
    task.notes.extend(directions.notes)
    if directions.rebase:
        task.notes.append(f"Start from the policy of round {directions.rebase}, not from a later one.")
    changes = v1.Iteration(notes=directions.notes, parent=_parent(earlier, directions.rebase))
    context.store.update_iteration(number, changes, ["notes", "parent"])
    return task


def _parent(earlier: list[v1.Iteration], rebase: int) -> str:
    """Return the name of the round that this one revises: the latest one with a policy; empty for none."""
    chosen = [entry.name for entry in earlier if entry.number == rebase]
    return next(iter(chosen or [entry.name for entry in reversed(earlier) if entry.code.chosen]), "")


def _reflect(context: SessionContext, number: int, task: agent_pb.PolicyAuthorTask) -> Json:
    """Return the reflection on the earlier rounds; empty, with a warning, if there is none."""
    reflector = agent_pb.ReflectorTask(brief=task.brief, history=task.history)
    request = agent_pb.Task(key=key_of(context, f"iterations/{number}/reflector"), reflector=reflector)
    (answer,) = replies(context, number, [request])
    if isinstance(answer, DressageError):
        message = f"round {number} has no reflection: {answer.message}"
        context.store.warn("NO_REFLECTION", message, iteration=number, key=f"reflection:{number}")
        return ""
    context.store.update_iteration(
        number, v1.Iteration(code=v1.CodeProposal(reflection=answer.reflection.text)), ["code.reflection"]
    )
    return answer.reflection.text


def _author(context: SessionContext, number: int, task: agent_pb.PolicyAuthorTask) -> Json:
    requests = []
    for candidate in range(1, context.spec.code.candidates + 1):
        request = agent_pb.Task(key=key_of(context, f"iterations/{number}/policy_author/{candidate}"))
        request.policy_author.CopyFrom(task)
        request.policy_author.candidate = candidate
        requests.append(request)
    answers = replies(context, number, requests)
    missing = [answer for answer in answers if isinstance(answer, DressageError) and answer.reason in NO_REPLY]
    if len(missing) == len(answers):
        message = f"the author has no policies for round {number}: {missing[0].message}"
        if number > 1:
            raise Exhausted(message)
        raise FailedPrecondition(message, reason=missing[0].reason, metadata=missing[0].metadata)
    models = [answer.model for answer in answers if isinstance(answer, agent_pb.TaskResult)]
    author = models[0] if models else context.spec.model
    context.store.update_iteration(number, v1.Iteration(author=author), ["author"])
    return as_json([_candidate(answer, author) for answer in answers])


def _candidate(answer: agent_pb.TaskResult | DressageError, author: str) -> Candidate:
    if isinstance(answer, DressageError):
        return Candidate("", author).with_failure(answer.reason, answer.message, unrepairable=True)
    return Candidate(answer.policy.source, answer.model)


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
        with_best = code.chosen - 1 if code.chosen else 0
        for index, candidate in enumerate(code.candidates):
            if index != with_best and not show_losers:
                continue
            trial = agent_pb.PolicyTrial(round=entry.number, returns=candidate.returns)
            trial.best_of_round = bool(code.chosen) and index == with_best
            if candidate.HasField("failure"):
                trial.failure = f"{candidate.failure.reason}: {candidate.failure.message}"[:_MAX_FAILURE]
            if index == with_best:
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
