"""Generated rewards and judges on their way through the check: author, brief, repairs and findings.

A repeated request must equal the first one, or its journalled reply could not be used. The facts of a brief therefore come from
the spec. What is left of the budget changes with each call; only the reviser is given it: its task is recorded in a step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace

from dressage.api.internal.v1 import agent_service_pb2 as agent_pb
from dressage.api.internal.v1 import judge_service_pb2 as judge_pb
from dressage.api.v1 import event_pb2 as ev
from dressage.api.v1 import session_pb2 as v1
from dressage.errors import FailedPrecondition

from dressage_orchestrator.lifecycle import outages
from dressage_orchestrator.lifecycle.context import Json, SessionContext
from dressage_orchestrator.lifecycle.conversations import NO_REPLY, brief, converse, key_of
from dressage_orchestrator.models import USER

_MAX_SHOWN_FAILURES = 5


@dataclass(frozen=True)
class Code:
    """Generated code and who wrote it.

    :param controls: null controls that a judge must fail.
    :param repairs: how often its author repaired it.
    :param explanations: what each repair changed, in its author's words.
    :param edits: how often a person replaced it while it waited for approval.
    """

    source: str
    author: str
    controls: tuple[str, ...] = ()
    repairs: int = 0
    explanations: tuple[str, ...] = ()
    edits: int = 0

    @classmethod
    def of(cls, data: Json) -> Code:
        """Build from a step's result."""
        lists = {name: tuple(data.get(name, ())) for name in ("controls", "explanations")}
        return cls(**{**data, **lists})

    @property
    def version(self) -> str:
        """Distinguishes its versions in the names of steps."""
        return f"{self.repairs}" + (f"-edit{self.edits}" if self.edits else "")


def pass_check(
    context: SessionContext, number: int, subject: str, code: Code, *, rollouts: Sequence[str] = ()
) -> tuple[Code, judge_pb.CheckResponse]:
    """Return the code once it passes its check, repaired by its author as often as allowed, and the check's report.

    :param subject: ``reward`` or ``judge``.
    :param rollouts: artifact keys of rollouts that a judge must judge as well.
    :raises FailedPrecondition: when it does not pass; reason REWARD_REJECTED or JUDGE_REJECTED.
    """
    while True:
        report = check(context, number, subject, code, rollouts=rollouts)
        if report.ok:
            return code, report
        code = repair_code(context, number, subject, code, list(report.failures))


def repair_code(
    context: SessionContext, number: int, subject: str, code: Code, failures: Sequence[ev.CheckFailure]
) -> Code:
    """Return the code after its author's next repair.

    :raises FailedPrecondition: when its author is no model, or repaired it often enough.
    """
    if not may_repair(context, code):
        raise rejection(subject, code, failures)
    turn = code.repairs + 1

    def write() -> Json:
        try:
            result = converse(context, number, _repair_task(context, number, subject, code, failures))
        except FailedPrecondition as error:
            if error.reason not in NO_REPLY:
                raise
            raise rejection(subject, code, failures) from error
        written = result.reward if subject == "reward" else result.judge
        controls = code.controls if subject == "reward" else tuple(result.judge.null_controls)
        explanations = (*code.explanations, written.reasoning)
        return asdict(replace(code, source=written.source, controls=controls, repairs=turn, explanations=explanations))

    fixed = Code.of(context.step(f"repair:{subject}:{number}:{turn}", write))
    if subject == "reward":
        count = v1.Iteration(repairs=turn)
        context.step(f"repairs:{number}:{turn}", lambda: _record(context, number, count, "repairs"))
    return fixed


def may_repair(context: SessionContext, code: Code) -> bool:
    """Whether the code's author may repair it once more: a person's code is theirs to repair."""
    return code.author != USER and code.repairs < context.engine.settings.max_repairs


def _repair_task(
    context: SessionContext, number: int, subject: str, code: Code, failures: Sequence[ev.CheckFailure]
) -> agent_pb.Task:
    repair = agent_pb.CodeRepair(
        source=code.source,
        failures=failures,
        round=code.repairs + 1,
        earlier_explanations=code.explanations,
        null_controls=code.controls,
    )
    task = agent_pb.Task(key=key_of(context, f"iterations/{number}/{subject}_author/repair/{repair.round}"))
    if subject == "reward":
        task.reward_author.brief.CopyFrom(reward_brief(context, number))
        task.reward_author.repair.CopyFrom(repair)
    else:
        task.judge_author.brief.CopyFrom(reward_brief(context, number))
        task.judge_author.pass_threshold = context.spec.pass_threshold
        task.judge_author.repair.CopyFrom(repair)
    return task


def _record(context: SessionContext, number: int, changes: v1.Iteration, *paths: str) -> None:
    context.store.update_iteration(number, changes, paths)


def check(
    context: SessionContext, number: int, subject: str, code: Code, *, rollouts: Sequence[str] = (), tag: str = ""
) -> judge_pb.CheckResponse:
    """Check code and append the event of the result.

    :param rollouts: artifact keys of rollouts that a judge must judge as well.
    :param tag: distinguishes a further check of the same version.
    """
    name = f"check:{subject}:{number}:{code.version}{tag}"

    def work() -> judge_pb.CheckResponse:
        request = judge_pb.CheckRequest(environment=context.environment, pass_threshold=context.spec.pass_threshold)
        if subject == "reward":
            request.reward_source = code.source
            request.traceable = context.spec.pool in context.engine.device_pools
        else:
            request.judge_source = code.source
            request.null_controls.extend(code.controls)
            request.episode_steps = context.spec.environment_options.max_episode_steps
            request.rollouts.extend(rollouts)
        report = outages.call(context, number, lambda: context.engine.judge.check(request))
        finished = ev.CheckFinished(
            subject=subject, ok=report.ok, failures=report.failures, rollouts=len(request.rollouts)
        )
        context.store.emit(ev.Event(check_finished=finished), iteration=number, key=f"checked/{name}")
        return report

    return context.message_step(name, judge_pb.CheckResponse, work)


def rejection(subject: str, code: Code, failures: Sequence[ev.CheckFailure]) -> FailedPrecondition:
    """Return the error of code that does not pass and cannot be repaired."""
    more = f"; and {len(failures) - _MAX_SHOWN_FAILURES} more" if len(failures) > _MAX_SHOWN_FAILURES else ""
    tries = f" after {code.repairs} repair{'s' if code.repairs > 1 else ''}" if code.repairs else ""
    message = f"the {subject} did not pass its check{tries}: {findings_line(failures)}{more}"
    remedy = f"correct the {subject} and try again; `dressage check` shows what is wrong"
    return FailedPrecondition(message, reason=f"{subject.upper()}_REJECTED", metadata={"remedy": remedy})


def findings_line(failures: Sequence[ev.CheckFailure]) -> str:
    """Return the first findings of a check in one line."""
    return "; ".join(
        f"{entry.rule}"
        + (f" (line {entry.line})" if entry.line else "")
        + f": {entry.message.rstrip('.')}"
        + (f"; seen: {entry.seen}" if entry.seen else "")
        for entry in failures[:_MAX_SHOWN_FAILURES]
    )


def reward_brief(
    context: SessionContext, number: int, *, remaining: v1.Budget | None = None, steps_per_member: int = 0
) -> agent_pb.Brief:
    """Return the brief of a role that works on iteration ``number``.

    :param remaining: what is left of the budget; None: the session's limits.
    :param steps_per_member: of the iteration, if it differs from the spec's; 0: the spec's.
    """
    spec, whole = context.spec, brief(context)
    whole.facts.CopyFrom(
        agent_pb.SessionFacts(
            environment_options=spec.environment_options,
            steps_per_member=steps_per_member or spec.reward.steps_per_member,
            most_steps_per_member=spec.reward.max_steps_per_member,
            seeds=spec.reward.seeds,
            pass_threshold=spec.pass_threshold,
            iteration=number,
            max_iterations=spec.max_iterations,
            budget=spec.budget if remaining is None else remaining,
        )
    )
    return whole
