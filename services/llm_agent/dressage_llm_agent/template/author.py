"""Entry point of the template author: the result of a task, at once and at no cost."""

from __future__ import annotations

from dressage.api.internal.v1 import agent_service_pb2 as agent_pb
from dressage.api.v1 import session_pb2
from dressage.envs.cards import load_card
from dressage.errors import FailedPrecondition
from google.protobuf.message import Message

from dressage_llm_agent.template import recorded_programs
from dressage_llm_agent.template.judge_plan import plan_judge
from dressage_llm_agent.template.parser import parse
from dressage_llm_agent.template.render import intent_words, render_judge, render_reward
from dressage_llm_agent.template.reviser import revise
from dressage_llm_agent.template.reward_plan import plan_reward

TemplateTask = (
    agent_pb.ElicitorTask
    | agent_pb.RewardAuthorTask
    | agent_pb.JudgeAuthorTask
    | agent_pb.FixerTask
    | agent_pb.ReviserTask
    | agent_pb.ProgramAuthorTask
    | agent_pb.ProgramReviserTask
)
"""Tasks that the template author accepts."""


def answer(task: TemplateTask) -> Message:
    """Return the result of a task.

    :raises InvalidArgument: ``TEMPLATE_UNKNOWN_INTENT`` for an unknown intent, with a list of the known ones.
    :raises FailedPrecondition: ``TEMPLATE_CANNOT_FIX`` or ``TEMPLATE_NO_REVISION``; `recorded_programs.answer`'s reasons.
    :raises NotFound: for an environment without a card.
    """
    match task:
        case agent_pb.ElicitorTask():
            return elicit(task.brief)
        case agent_pb.RewardAuthorTask():
            if task.HasField("repair"):
                raise _cannot_repair("reward")
            return write_reward(task.brief)
        case agent_pb.JudgeAuthorTask():
            if task.HasField("repair"):
                raise _cannot_repair("judge")
            return write_judge(task.brief)
        case agent_pb.FixerTask():
            raise _cannot_repair(task.subject)
        case agent_pb.ReviserTask():
            return revise(task)
        case agent_pb.ProgramAuthorTask() | agent_pb.ProgramReviserTask():
            return recorded_programs.answer(task)


def _cannot_repair(subject: str) -> FailedPrecondition:
    message = f"template/v1 cannot repair a {subject}; configure a language model"
    return FailedPrecondition(message, reason="TEMPLATE_CANNOT_FIX", metadata={"subject": subject})


def elicit(brief: agent_pb.Brief) -> agent_pb.ElicitorResult:
    """Return the criteria of the judge that the template author would write."""
    card = load_card(brief.environment)
    plan = plan_judge(parse(brief.intent, card.id), card)
    criteria = [
        session_pb2.IntentCriterion(
            title=grade.title, description=grade.description, category=grade.category, default_on=True
        )
        for grade in plan.grades
    ]
    return agent_pb.ElicitorResult(criteria=criteria)


def write_reward(brief: agent_pb.Brief) -> agent_pb.RewardProposal:
    """Return a reward for the intent; criteria do not change it, since they were derived from the same intent."""
    card = load_card(brief.environment)
    intent = parse(brief.intent, card.id)
    plan = plan_reward(intent, card)
    terms = "; ".join(f"{term.name}: {term.meaning}" for term in plan.terms)
    return agent_pb.RewardProposal(
        source=render_reward(plan, intent), reasoning=f"{intent_words(intent)} is rewarded by {terms}."
    )


def write_judge(brief: agent_pb.Brief) -> agent_pb.JudgeProposal:
    """Return a judge for the intent, with the null controls that contradict it."""
    card = load_card(brief.environment)
    intent = parse(brief.intent, card.id)
    plan = plan_judge(intent, card)
    grades = "; ".join(f"{grade.name}: {grade.description}" for grade in plan.grades)
    reasoning = f"Judged by {grades}. Null controls {', '.join(plan.null_controls)}: {plan.null_reasoning}."
    source = render_judge(plan, intent, card)
    return agent_pb.JudgeProposal(source=source, null_controls=plan.null_controls, reasoning=reasoning)
