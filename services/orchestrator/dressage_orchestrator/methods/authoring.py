"""What the reward method asks of llm-agent: authors, fixer, reviser; and the checks of what they wrote."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace

from dressage.api.internal.v1 import agent_service_pb2 as agent_pb
from dressage.api.internal.v1 import judge_service_pb2 as judge_pb
from dressage.api.v1 import event_pb2 as ev
from dressage.api.v1 import session_pb2 as v1
from dressage.errors import DressageError, FailedPrecondition, ResourceExhausted
from dressage.serving.bills import billed
from google.protobuf.json_format import MessageToDict

from dressage_orchestrator import names
from dressage_orchestrator.clients import Tool, all_of
from dressage_orchestrator.database import sessions
from dressage_orchestrator.database.engine import Transaction
from dressage_orchestrator.workflow import budget
from dressage_orchestrator.workflow.flow import Flow, Json
from dressage_orchestrator.workflow.judging import charge
from dressage_orchestrator.workflow.outcome import Exhausted

USER = "user"
BUDGET_REASON = "LLM_BUDGET_EXHAUSTED"
CANNOT_FIX_REASON = "TEMPLATE_CANNOT_FIX"
NO_REVISION_REASON = "TEMPLATE_NO_REVISION"
"""Reasons of llm-agent that end a session in another way than a fault does."""

_MAX_SUMMARY = 300
_MAX_SHOWN_FAILURES = 5


@dataclass(frozen=True)
class Code:
    """Generated code and who wrote it.

    :param controls: null controls that a judge must fail.
    :param repairs: how often it was repaired.
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
        """From a step's result."""
        lists = {name: tuple(data.get(name, ())) for name in ("controls", "explanations")}
        return cls(**{**data, **lists})

    @property
    def version(self) -> str:
        """Tells its versions apart in the names of steps."""
        return f"{self.repairs}" + (f"-edit{self.edits}" if self.edits else "")


def brief(flow: Flow) -> agent_pb.Brief:
    """What every author needs to know."""
    spec = flow.spec
    return agent_pb.Brief(intent=spec.intent, criteria=spec.criteria, environment=flow.environment)


def key_of(flow: Flow, path: str) -> str:
    """A task's key; a resumed session asks anew, so its epoch is part of it."""
    return path if flow.epoch == 0 else f"{path}-e{flow.epoch}"


def author_first(flow: Flow) -> tuple[Code, Code | None]:
    """The first reward and the judge (none when training only), written at the same time by those not given."""

    def write() -> Json:
        spec = flow.spec
        given = {"reward": spec.reward.reward_source, "judge": "" if spec.reward.train_only else spec.judge_source}
        kept = _kept_judge(flow)
        if kept is not None:
            given["judge"] = kept.source
        wanted = [
            name for name in ("reward", "judge") if not given[name] and not (name == "judge" and spec.reward.train_only)
        ]
        results = dict(zip(wanted, converse_all(flow, [_author_task(flow, name) for name in wanted], 1), strict=True))
        reward = Code(given["reward"], USER) if given["reward"] else _reward(results["reward"])
        judge = None if spec.reward.train_only else kept or (Code(given["judge"], USER) if given["judge"] else None)
        if judge is None and not spec.reward.train_only:
            proposed = results["judge"].judge
            judge = Code(proposed.source, results["judge"].model, tuple(proposed.null_controls))
        return {"reward": asdict(reward), "judge": asdict(judge) if judge else None}

    made = flow.step("author:1", write)
    return Code.of(made["reward"]), Code.of(made["judge"]) if made["judge"] else None


def _reward(result: agent_pb.TaskResult) -> Code:
    return Code(result.reward.source, result.model)


def author_judge(flow: Flow) -> Code:
    """The judge of a resumed session: the one it had, the caller's, or a newly written one."""

    def write() -> Json:
        kept = _kept_judge(flow)
        if kept is None and flow.spec.judge_source:
            kept = Code(flow.spec.judge_source, USER)
        if kept is None:
            result = converse_all(flow, [_author_task(flow, "judge")], 1)[0]
            kept = Code(result.judge.source, result.model, tuple(result.judge.null_controls))
        return asdict(kept)

    return Code.of(flow.step("author:judge", write))


def _kept_judge(flow: Flow) -> Code | None:
    """The judge that passed its check in an earlier epoch; None if there is none."""
    if flow.epoch == 0 or flow.spec.judge_source:
        return None
    key = f"{names.iteration_name(flow.session, 1)}/judge.py"
    if not flow.engine.store.exists(key):
        return None
    source, controls = flow.engine.store.get(key).decode(), ()
    facts = f"{names.iteration_name(flow.session, 1)}/judge.json"
    if flow.engine.store.exists(facts):
        controls = json.loads(flow.engine.store.get(facts))["null_controls"]
    return Code(source, flow.spec.model, tuple(controls))


def _author_task(flow: Flow, subject: str) -> agent_pb.Task:
    if subject == "judge":
        judge = agent_pb.JudgeAuthorTask(brief=brief(flow), pass_threshold=flow.spec.pass_threshold)
        return agent_pb.Task(key=key_of(flow, "judge_author"), judge_author=judge)
    reward = agent_pb.RewardAuthorTask(brief=brief(flow))
    return agent_pb.Task(key=key_of(flow, "iterations/1/reward_author"), reward_author=reward)


def converse(
    flow: Flow, task: agent_pb.Task, number: int, tools: Mapping[str, Tool] | None = None
) -> agent_pb.TaskResult:
    """Has one task done, its cost counted and its event told. Only inside a step."""
    return converse_all(flow, [task], number, tools)[0]


def converse_all(
    flow: Flow, tasks: Sequence[agent_pb.Task], number: int, tools: Mapping[str, Tool] | None = None
) -> list[agent_pb.TaskResult]:
    """Has tasks done at the same time, each with its share of what may still be spent. Only inside a step."""
    with flow.engine.database.begin() as tx:
        session = sessions.get(tx, flow.session)
        spent = budget.used_up(session, now=tx.now)
    if spent is not None:
        raise Exhausted(spent[1], kind=spent[0])
    calls: list[Awaitable[agent_pb.TaskResult]] = []
    for task in tasks:
        task.session = names.session_name(flow.session)
        task.model = flow.spec.model
        task.remaining_budget.CopyFrom(budget.remaining(session, shares=len(tasks)))
        calls.append(flow.engine.agent.converse(task, tools))
    answers = flow.call(all_of(*calls))
    results = [answer for answer in answers if isinstance(answer, agent_pb.TaskResult)]
    failures = [answer for answer in answers if isinstance(answer, DressageError)]
    with flow.engine.database.begin() as tx:
        for task, answer in zip(tasks, answers, strict=True):
            if isinstance(answer, DressageError):
                charge(tx, flow, number, task.WhichOneof("role") or "", billed(answer))
            elif flow.once(tx, f"replied/{task.key}"):
                _count_reply(flow, tx, task, answer, number)
    if failures:
        raise _ended_by(failures[0])
    return results


def _ended_by(error: DressageError) -> Exception:
    """What a failed task means for the session."""
    if isinstance(error, ResourceExhausted) and error.reason == BUDGET_REASON:
        return Exhausted(error.message, kind=error.metadata.get("kind", "tokens"))
    return error


def _count_reply(flow: Flow, tx: Transaction, task: agent_pb.Task, result: agent_pb.TaskResult, number: int) -> None:
    """Counts a reply's cost and tells it."""
    role = task.WhichOneof("role") or ""
    session = charge(tx, flow, number, role, result.cost)
    told = ev.AgentReplied(role=role, model=result.model, summary=_summary(result), cost=result.cost)
    told.session_cost.CopyFrom(session.cost)
    flow.emit(tx, ev.Event(agent_replied=told), iteration=number)


def _summary(result: agent_pb.TaskResult) -> str:
    said = {
        "reward": result.reward.reasoning,
        "judge": result.judge.reasoning,
        "fixed": result.fixed.explanation,
        "revision": result.revision.planned_change,
        "review": result.review.summary,
    }.get(result.WhichOneof("result") or "", "")
    line = said.strip().partition("\n")[0]
    return line if len(line) <= _MAX_SUMMARY else line[: _MAX_SUMMARY - 1] + "…"


def checked(flow: Flow, number: int, subject: str, code: Code) -> tuple[Code, judge_pb.CheckResponse]:
    """The code once it passes its check, repaired by the fixer as often as allowed, and what the check found.

    :param subject: ``reward`` or ``judge``.
    :raises FailedPrecondition: when it does not pass; reason REWARD_REJECTED or JUDGE_REJECTED.
    """
    while True:
        report = _check(flow, number, subject, code)
        if report.ok:
            return code, report
        code = repaired(flow, number, subject, code, list(report.failures))


def repaired(flow: Flow, number: int, subject: str, code: Code, failures: list[ev.CheckFailure]) -> Code:
    """The code after the fixer's next repair.

    :raises FailedPrecondition: when there is nobody to repair it, or it was repaired often enough.
    """
    if code.author == USER or code.repairs >= flow.engine.settings.max_repairs:
        raise _rejected(subject, code, failures)
    turn = code.repairs + 1

    def fix() -> Json:
        fixer = agent_pb.FixerTask(brief=brief(flow), subject=subject, source=code.source, failures=failures)
        if flow.complete:
            fixer.round = turn
            fixer.earlier_explanations.extend(code.explanations)
        folder = "fixer" if subject == "reward" else "judge_fixer"
        task = agent_pb.Task(key=key_of(flow, f"iterations/{number}/{folder}/{turn}"), fixer=fixer)
        try:
            result = converse(flow, task, number)
        except FailedPrecondition as error:
            if error.reason != CANNOT_FIX_REASON:
                raise
            raise _rejected(subject, code, failures) from error
        explanations = (*code.explanations, result.fixed.explanation)
        return asdict(replace(code, source=result.fixed.source, repairs=turn, explanations=explanations))

    fixed = Code.of(flow.step(f"fix:{subject}:{number}:{turn}", fix))
    if subject == "reward":
        flow.step(f"repairs:{number}:{turn}", lambda: _count_repairs(flow, number, turn))
    return fixed


def _count_repairs(flow: Flow, number: int, repairs: int) -> None:
    def count(iteration: v1.Iteration) -> None:
        iteration.repairs = repairs

    with flow.engine.database.begin() as tx:
        sessions.put_iteration(tx, flow.session, number, count)


def _rejected(subject: str, code: Code, failures: Sequence[ev.CheckFailure]) -> FailedPrecondition:
    shown = [
        f"{f.rule}"
        + (f" (line {f.line})" if f.line else "")
        + f": {f.message}"
        + (f"; seen: {f.seen}" if f.seen else "")
        for f in failures[:_MAX_SHOWN_FAILURES]
    ]
    more = f"; and {len(failures) - len(shown)} more" if len(failures) > len(shown) else ""
    tries = f" after {code.repairs} repairs" if code.repairs else ""
    message = f"the {subject} did not pass its check{tries}: {'; '.join(shown)}{more}"
    remedy = f"correct the {subject} and try again; `dressage check` tells what is wrong"
    return FailedPrecondition(message, reason=f"{subject.upper()}_REJECTED", metadata={"remedy": remedy})


def _check(flow: Flow, number: int, subject: str, code: Code) -> judge_pb.CheckResponse:
    name = f"check:{subject}:{number}:{code.version}"

    def check() -> judge_pb.CheckResponse:
        request = judge_pb.CheckRequest(environment=flow.environment, pass_threshold=flow.spec.pass_threshold)
        if subject == "reward":
            request.reward_source = code.source
        else:
            request.judge_source = code.source
            request.null_controls.extend(code.controls)
        report = flow.call(flow.engine.judge.check(request))
        with flow.engine.database.begin() as tx:
            if flow.once(tx, f"checked/{name}"):
                told = ev.CheckFinished(subject=subject, ok=report.ok, failures=report.failures)
                flow.emit(tx, ev.Event(check_finished=told), iteration=number)
        return report

    return flow.message_step(name, judge_pb.CheckResponse, check)


def proposal_json(iteration: v1.Iteration) -> Json:
    """What `proposal.json` holds of an iteration."""
    kept = [
        *(
            "name",
            "number",
            "parent",
            "author",
            "latex",
            "terms",
            "diagnosis",
            "planned_change",
            "lesson",
            "lesson_tier",
        ),
        *("configs", "hyperparameter_reasoning", "notes", "heeded_notes", "structural_rewrite", "edited"),
    ]
    whole = MessageToDict(iteration, preserving_proto_field_name=True)
    whole |= whole.get("reward", {})
    return {name: whole[name] for name in kept if name in whole}
