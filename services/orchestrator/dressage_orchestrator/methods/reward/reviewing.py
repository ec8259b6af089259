"""Code review before the check: the model reads its own code again, at most three rounds, reward and judge at once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from functools import partial

from dressage.api.internal.v1 import agent_service_pb2 as agent_pb
from dressage.errors import InvalidArgument

from dressage_orchestrator.lifecycle.context import Json, SessionContext
from dressage_orchestrator.lifecycle.conversations import converse_each, key_of, session_error
from dressage_orchestrator.methods.reward.briefing import reward_brief
from dressage_orchestrator.methods.reward.code import Code
from dressage_orchestrator.models import TEMPLATE, USER

MAX_ROUNDS = 3
_NO_SUCH_ROLE = "TEMPLATE_NO_SUCH_ROLE"
_NO_REVIEW = frozenset(
    {"LLM_REPLY_UNUSABLE", "LLM_TASK_TIMEOUT", "LLM_TOOL_LOOP", "LLM_REPLY_TOO_LARGE", "LLM_BAD_REQUEST"}
)
"""Reasons with which code stays unreviewed: the check and the judge find what a review would have found earlier."""


def reviewed(context: SessionContext, number: int, code: Mapping[str, Code]) -> dict[str, Code]:
    """Return the code after its review. Code of a person or of the template author is not reviewed.

    :param code: by subject, ``reward`` or ``judge``.
    """
    kept = dict(code)
    open_ = [name for name, entry in code.items() if entry.author not in (USER, TEMPLATE)]
    findings: dict[str, list[str]] = {name: [] for name in open_}
    for turn in range(1, min(MAX_ROUNDS, context.engine.settings.max_reviews) + 1):
        if not open_:
            break
        work = partial(_review, context, number, turn, {name: kept[name] for name in open_}, findings)
        outcomes = context.step(f"review:{number}:{turn}", work)
        open_ = [name for name in open_ if not outcomes[name]["approved"]]
        for name in open_:
            kept[name] = Code.of(outcomes[name]["code"])
            findings[name] += outcomes[name]["findings"]
    return kept


def _review(
    context: SessionContext, number: int, turn: int, code: Mapping[str, Code], findings: Mapping[str, list[str]]
) -> Json:
    tasks = [_task(context, number, turn, name, entry, findings[name]) for name, entry in code.items()]
    outcomes: Json = {}
    for name, answer in zip(code, converse_each(context, number, tasks), strict=True):
        if isinstance(answer, agent_pb.TaskResult):
            outcomes[name] = _outcome(code[name], answer.review)
            continue
        no_role = answer.reason == _NO_SUCH_ROLE or (isinstance(answer, InvalidArgument) and answer.field == "role")
        if not no_role and answer.reason not in _NO_REVIEW:
            raise session_error(answer)
        outcomes[name] = {"approved": True}
        if not no_role:
            message = f"the {name} is not reviewed: {answer.message}"
            context.store.warn("NOT_REVIEWED", message, iteration=number, key=f"unreviewed/{number}/{name}/{turn}")
    return outcomes


def _task(
    context: SessionContext, number: int, turn: int, subject: str, code: Code, findings: list[str]
) -> agent_pb.Task:
    review = agent_pb.CodeReviewerTask(
        brief=reward_brief(context, number), subject=subject, source=code.source, round=turn, earlier_findings=findings
    )
    review.pass_threshold = context.spec.pass_threshold
    key = key_of(context, f"iterations/{number}/review/{subject}/{turn}")
    return agent_pb.Task(key=key, code_reviewer=review)


def _outcome(code: Code, review: agent_pb.Review) -> Json:
    if review.approved or not review.source.strip():
        return {"approved": True}
    findings = [f"{entry.kind} (line {entry.line}): {entry.message}" for entry in review.findings]
    return {"approved": False, "code": asdict(replace(code, source=review.source)), "findings": findings}
