"""The first reward and the judge, and the review of all code before its check.

They are given by the caller, kept from an earlier epoch, or written by an author. In a review the model reads its own code
again, at most three rounds, reward and judge at once.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, replace
from functools import partial

from dressage.api.internal.v1 import agent_service_pb2 as agent_pb
from dressage.api.v1 import session_pb2 as v1
from dressage.errors import InvalidArgument

from dressage_orchestrator.lifecycle.context import Json, SessionContext
from dressage_orchestrator.lifecycle.conversations import converse_all, converse_each, key_of, session_error
from dressage_orchestrator.methods.reward.code import Code, reward_brief
from dressage_orchestrator.methods.reward.spec import has_code_judge
from dressage_orchestrator.models import TEMPLATE, USER


def author_first(context: SessionContext) -> tuple[Code, Code | None]:
    """Return the first reward and the code judge, if the session has one; missing ones are written at the same time."""

    def write() -> Json:
        spec = context.spec
        code_judge = has_code_judge(spec)
        reward = Code(spec.reward.reward_source, USER) if spec.reward.reward_source else None
        environment: Json = None
        judge = _existing_judge(context) if code_judge else None
        missing = [*(["reward"] if reward is None else []), *(["judge"] if judge is None and code_judge else [])]
        results = dict(
            zip(missing, converse_all(context, 1, [_author_task(context, name) for name in missing]), strict=True)
        )
        if reward is None:
            written = results["reward"].reward
            reward = Code(written.source, results["reward"].model)
            options = {field.name: value for field, value in written.environment_options.ListFields()}
            environment = {"options": options, "why": written.environment_reasoning} if options else None
        if "judge" in results:
            judge = _written_judge(results["judge"])
        return {"reward": asdict(reward), "judge": asdict(judge) if judge else None, "environment": environment}

    authored = context.step("author:1", write)
    if environment := authored.get("environment"):
        # A step of its own: a repetition of the authors' step must send the request that it sent before.
        context.step("environment:1", lambda: _change_environment(context, environment))
        context.refresh()
    return Code.of(authored["reward"]), Code.of(authored["judge"]) if authored["judge"] else None


def _change_environment(context: SessionContext, environment: Json) -> None:
    """Set the options of the environment that the author asked for, except for those that the caller set."""
    set_options = context.store.get().spec.environment_options
    set_by_caller = {field.name for field, _ in set_options.ListFields()}
    own = {name: value for name, value in environment["options"].items() if name not in set_by_caller}
    if not own:
        return
    whole = v1.EnvironmentOptions(**own)
    whole.MergeFrom(set_options)
    changes = v1.Session(spec=v1.SessionSpec(environment_options=whole), options_of_author=v1.EnvironmentOptions(**own))
    context.store.update(changes, ["spec.environment_options", "options_of_author"])
    names = ", ".join(f"{name} = {str(value).lower()}" for name, value in own.items())
    message = f"the author changed the environment of this session: {names}. Its reason: {environment['why']}"
    context.store.warn("ENVIRONMENT_CHANGED", message[:1000], iteration=1, key="environment:1")


def author_judge(context: SessionContext) -> Code:
    """Return the judge of a resumed session: its earlier one, the caller's, or a newly written one."""

    def write() -> Json:
        judge = _existing_judge(context)
        return asdict(judge or _written_judge(converse_all(context, 1, [_author_task(context, "judge")])[0]))

    return Code.of(context.step("author:judge", write))


def _existing_judge(context: SessionContext) -> Code | None:
    """Return the caller's judge, or the one that passed its check in an earlier epoch; None if there is none."""
    if context.spec.judge_source:
        return Code(context.spec.judge_source, USER)
    if context.epoch == 0:
        return None
    store = context.engine.store
    # The latest one: it may have been repaired after the first iteration.
    for iteration in reversed(context.store.iterations()):
        folder = context.iteration_name(iteration.number)
        if store.exists(f"{folder}/judge.py"):
            facts = json.loads(store.get(f"{folder}/judge.json")) if store.exists(f"{folder}/judge.json") else {}
            return Code(
                store.get(f"{folder}/judge.py").decode(),
                facts.get("author", context.spec.model),
                tuple(facts.get("null_controls", ())),
            )
    return None


def _written_judge(result: agent_pb.TaskResult) -> Code:
    return Code(result.judge.source, result.model, tuple(result.judge.null_controls))


def _author_task(context: SessionContext, subject: str) -> agent_pb.Task:
    if subject == "judge":
        judge = agent_pb.JudgeAuthorTask(brief=reward_brief(context, 1), pass_threshold=context.spec.pass_threshold)
        return agent_pb.Task(key=key_of(context, "judge_author"), judge_author=judge)
    reward = agent_pb.RewardAuthorTask(brief=reward_brief(context, 1))
    return agent_pb.Task(key=key_of(context, "iterations/1/reward_author"), reward_author=reward)


MAX_ROUNDS = 3
_NO_SUCH_ROLE = "TEMPLATE_NO_SUCH_ROLE"
_NO_REVIEW = frozenset(
    {"LLM_REPLY_UNUSABLE", "LLM_TASK_TIMEOUT", "LLM_TOOL_LOOP", "LLM_REPLY_TOO_LARGE", "LLM_BAD_REQUEST"}
)
"""Reasons with which code stays unreviewed: the check and the judge find what a review would have found earlier."""


def review_code(context: SessionContext, number: int, code: Mapping[str, Code]) -> dict[str, Code]:
    """Return the code after its review. Code of a person or of the template author is not reviewed.

    :param code: by subject, ``reward`` or ``judge``.
    """
    current = dict(code)
    open_ = [name for name, entry in code.items() if entry.author not in (USER, TEMPLATE)]
    findings: dict[str, list[str]] = {name: [] for name in open_}
    for turn in range(1, min(MAX_ROUNDS, context.engine.settings.max_reviews) + 1):
        if not open_:
            break
        work = partial(_review, context, number, turn, {name: current[name] for name in open_}, findings)
        outcomes = context.step(f"review:{number}:{turn}", work)
        open_ = [name for name in open_ if not outcomes[name]["approved"]]
        for name in open_:
            current[name] = Code.of(outcomes[name]["code"])
            findings[name] += outcomes[name]["findings"]
    return current


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
