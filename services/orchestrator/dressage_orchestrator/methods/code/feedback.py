"""The feedback class of a session: a model writes it once; it is checked and repaired.

A session continues without feedback if the class stays broken.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial

from dressage.api.internal.v1 import agent_service_pb2 as agent_pb
from dressage.api.internal.v1 import judge_service_pb2 as judge_pb
from dressage.api.v1 import event_pb2 as ev
from dressage.api.v1 import session_pb2 as v1
from dressage.errors import DressageError, InvalidArgument

from dressage_orchestrator.lifecycle import outages
from dressage_orchestrator.lifecycle.context import Json, SessionContext
from dressage_orchestrator.lifecycle.conversations import brief, key_of, replies
from dressage_orchestrator.methods.code import spec as settings
from dressage_orchestrator.methods.code.checking import failure_lines

MAX_REPAIRS = 3
_FILE = "feedback.json"


@dataclass(frozen=True)
class _Feedback:
    """A feedback class; an empty source means that the session has none."""

    source: str = ""
    repairs: int = 0
    explanations: tuple[str, ...] = ()

    @classmethod
    def of(cls, data: Json) -> _Feedback:
        return cls(data["source"], data["repairs"], tuple(data["explanations"]))


class FeedbackClass:
    """The session's feedback class. Attributes are results of steps."""

    def __init__(self, context: SessionContext) -> None:
        self._context = context
        self._current: _Feedback | None = None

    def source(self, number: int) -> str:
        """Return the checked source; empty if the session has none. Written before its first use.

        :param number: the iteration that needs it.
        """
        if not self._context.spec.code.feedback:
            return ""
        if self._current is None:
            first = _Feedback.of(self._context.step("feedback:write", lambda: asdict(self._write(number))))
            self._current = self._pass_check(number, first)
        return self._current.source

    def review(self, number: int, results: Sequence[v1.CandidateResult]) -> None:
        """Repair the class if it failed on trajectories; the next evaluation uses the repaired one.

        :param results: results with a ``feedback_failure``.
        """
        if not results or self._current is None or not self._current.source:
            return
        message = results[0].feedback_failure.message
        failure = ev.CheckFailure(rule=results[0].feedback_failure.reason.lower() or "trajectory", message=message)
        self._current = self._pass_check(number, self._repair(number, self._current, [failure]))

    def _write(self, number: int) -> _Feedback:
        context = self._context
        key = f"{context.iteration_name(1)}/{_FILE}"
        if context.epoch > 0 and context.engine.store.exists(key):
            return _Feedback.of(json.loads(context.engine.store.get(key)))
        author = agent_pb.FeedbackAuthorTask(brief=brief(context), horizon=settings.horizon(context.spec))
        task = agent_pb.Task(key=key_of(context, "feedback_author"), feedback_author=author)
        (answer,) = replies(context, number, [task])
        if isinstance(answer, DressageError):
            return self._without(number, answer.message)
        return _Feedback(answer.feedback.source)

    def _pass_check(self, number: int, feedback: _Feedback) -> _Feedback:
        """Return the class after its check and repairs; without a source if it stays broken."""
        context = self._context
        while feedback.source:
            step, check = f"feedback:check:{number}:{feedback.repairs}", partial(self._check, number, feedback)
            report = context.message_step(step, judge_pb.CheckResponse, check)
            if report.ok:
                break
            feedback = self._repair(number, feedback, list(report.failures))
        context.step(f"feedback:keep:{number}:{feedback.repairs}", lambda: context.put_json(1, _FILE, asdict(feedback)))
        return feedback

    def _check(self, number: int, feedback: _Feedback) -> judge_pb.CheckResponse:
        context = self._context
        request = judge_pb.CheckRequest(environment=context.environment, feedback_source=feedback.source)
        try:
            report = outages.call(context, number, lambda: context.engine.judge.check(request))
        except InvalidArgument as error:
            report = judge_pb.CheckResponse(failures=[ev.CheckFailure(rule="request", message=error.message)])
        finished = ev.CheckFinished(subject="feedback", ok=report.ok, failures=report.failures)
        key = f"checked/feedback/{number}/{feedback.repairs}"
        context.store.emit(ev.Event(check_finished=finished), iteration=number, key=key)
        return report

    def _repair(self, number: int, feedback: _Feedback, failures: Sequence[ev.CheckFailure]) -> _Feedback:
        turn = feedback.repairs + 1
        step = f"feedback:fix:{number}:{turn}"
        return _Feedback.of(self._context.step(step, lambda: asdict(self._fix(number, feedback, failures))))

    def _fix(self, number: int, feedback: _Feedback, failures: Sequence[ev.CheckFailure]) -> _Feedback:
        if feedback.repairs >= MAX_REPAIRS:
            return self._without(number, f"after {MAX_REPAIRS} repairs: {failure_lines(failures)}")
        turn = feedback.repairs + 1
        fixer = agent_pb.FixerTask(
            brief=brief(self._context), subject="feedback", source=feedback.source, failures=failures
        )
        fixer.round = turn
        fixer.earlier_explanations.extend(feedback.explanations)
        key = key_of(self._context, f"feedback_fixer/{turn}")
        (answer,) = replies(self._context, number, [agent_pb.Task(key=key, fixer=fixer)])
        if isinstance(answer, DressageError):
            return self._without(number, f"{failure_lines(failures)}; no repair: {answer.message}")
        explanations = (*feedback.explanations, answer.fixed.explanation)
        return replace(feedback, source=answer.fixed.source, repairs=turn, explanations=explanations)

    def _without(self, number: int, why: str) -> _Feedback:
        """Return no feedback class, with a warning."""
        message = f"the session continues without feedback on trajectories: {why}"[:1000]
        self._context.store.warn("NO_FEEDBACK", message, iteration=number, key="feedback")
        return _Feedback()
