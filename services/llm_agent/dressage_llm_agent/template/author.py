"""The way into the template author: a task of any role to its result, at once and at no cost."""

from __future__ import annotations

from dressage.envs.cards import load_card
from dressage.errors import FailedPrecondition

from dressage_llm_agent.tasks import (
    Brief,
    Criterion,
    ElicitorResult,
    ElicitorTask,
    FixerTask,
    JudgeAuthorTask,
    JudgeProposal,
    ReviserTask,
    RewardAuthorTask,
    RewardProposal,
    RoleResult,
    RoleTask,
)
from dressage_llm_agent.template.judge_plan import plan_judge
from dressage_llm_agent.template.parser import parse
from dressage_llm_agent.template.render import intent_words, render_judge, render_reward
from dressage_llm_agent.template.reviser import revise
from dressage_llm_agent.template.reward_plan import plan_reward


def answer(task: RoleTask) -> RoleResult:
    """The result of a task.

    :raises InvalidArgument: ``TEMPLATE_UNKNOWN_INTENT``: the intent is not understood; the error lists what is.
    :raises FailedPrecondition: ``TEMPLATE_CANNOT_FIX`` or ``TEMPLATE_NO_REVISION``.
    :raises NotFound: the environment has no card.
    """
    match task:
        case ElicitorTask(brief=brief):
            return elicit(brief)
        case RewardAuthorTask(brief=brief):
            return write_reward(brief)
        case JudgeAuthorTask(brief=brief):
            return write_judge(brief)
        case FixerTask(subject=subject):
            raise FailedPrecondition(
                f"the built-in author cannot repair a {subject}; configure a language model for that",
                reason="TEMPLATE_CANNOT_FIX",
                metadata={"subject": subject},
            )
        case ReviserTask():
            return revise(task)


def elicit(brief: Brief) -> ElicitorResult:
    """The criteria that the template's judge would apply."""
    card = load_card(brief.environment)
    plan = plan_judge(parse(brief.intent, card.id), card)
    return ElicitorResult(tuple(Criterion(grade.title, grade.description, grade.category) for grade in plan.grades))


def write_reward(brief: Brief) -> RewardProposal:
    """A reward for the intent; criteria do not change it, since they were derived from the same intent."""
    card = load_card(brief.environment)
    intent = parse(brief.intent, card.id)
    plan = plan_reward(intent, card)
    terms = "; ".join(f"{term.name}: {term.meaning}" for term in plan.terms)
    return RewardProposal(render_reward(plan, intent), f"{intent_words(intent)} is rewarded by {terms}.")


def write_judge(brief: Brief) -> JudgeProposal:
    """A judge for the intent, with the null controls that contradict it."""
    card = load_card(brief.environment)
    intent = parse(brief.intent, card.id)
    plan = plan_judge(intent, card)
    grades = "; ".join(f"{grade.name}: {grade.description}" for grade in plan.grades)
    reasoning = f"Judged by {grades}. Null controls {', '.join(plan.null_controls)}: {plan.null_reasoning}."
    return JudgeProposal(render_judge(plan, intent, card), plan.null_controls, reasoning)
