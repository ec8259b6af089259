"""The first reward and the judge: given by the caller, kept from an earlier epoch, or written by an author."""

from __future__ import annotations

import json
from dataclasses import asdict

from dressage.api.internal.v1 import agent_service_pb2 as agent_pb
from dressage.api.v1 import session_pb2 as v1

from dressage_orchestrator.lifecycle.context import Json, SessionContext
from dressage_orchestrator.lifecycle.conversations import converse_all, key_of
from dressage_orchestrator.methods.reward.briefing import reward_brief
from dressage_orchestrator.methods.reward.code import Code
from dressage_orchestrator.methods.reward.spec import has_code_judge
from dressage_orchestrator.models import USER


def author_first(context: SessionContext) -> tuple[Code, Code | None]:
    """Return the first reward and the code judge, if the session has one; those not given are written at the same time."""

    def write() -> Json:
        spec = context.spec
        code_judge = has_code_judge(spec)
        reward = Code(spec.reward.reward_source, USER) if spec.reward.reward_source else None
        environment: Json = None
        judge = _given_judge(context) if code_judge else None
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
    given = context.store.get().spec.environment_options
    set_by_caller = {field.name for field, _ in given.ListFields()}
    own = {name: value for name, value in environment["options"].items() if name not in set_by_caller}
    if not own:
        return
    whole = v1.EnvironmentOptions(**own)
    whole.MergeFrom(given)
    changes = v1.Session(spec=v1.SessionSpec(environment_options=whole), options_of_author=v1.EnvironmentOptions(**own))
    context.store.update(changes, ["spec.environment_options", "options_of_author"])
    names = ", ".join(f"{name} = {str(value).lower()}" for name, value in own.items())
    message = f"the author changed the environment of this session: {names}. Its reason: {environment['why']}"
    context.store.warn("ENVIRONMENT_CHANGED", message[:1000], iteration=1, key="environment:1")


def author_judge(context: SessionContext) -> Code:
    """Return the judge of a resumed session: its earlier one, the caller's, or a newly written one."""

    def write() -> Json:
        given = _given_judge(context)
        return asdict(given or _written_judge(converse_all(context, 1, [_author_task(context, "judge")])[0]))

    return Code.of(context.step("author:judge", write))


def _given_judge(context: SessionContext) -> Code | None:
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
