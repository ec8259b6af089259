"""The template author's revisions: a changed weight for the criterion with the lowest score.

A revision starts from the best iteration so far. Steering notes that request a known quality have priority: see `steering`.
If the training of that iteration ended before its behaviour stopped improving, its policies continue under the same reward.
Otherwise the reviser takes the criteria from the lowest score up and tries the changes that help each, except those that were
tried before. It parses the weights from the reward's source and the intent from its first line, so that a revision builds on
earlier ones. Without a change left it raises an error, which ends the session as exhausted.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from dressage.api.internal.v1 import agent_service_pb2 as agent_pb
from dressage.api.v1 import session_pb2
from dressage.envs.cards import EnvironmentCard, load_card
from dressage.errors import FailedPrecondition, InvalidArgument
from dressage.parsing import syntax_tree

from dressage_llm_agent.history import HyperparameterValue, PastIteration, hyperparameters_message, past_iteration
from dressage_llm_agent.template.intents import ParsedIntent
from dressage_llm_agent.template.parser import parse
from dressage_llm_agent.template.plans import RewardPlan
from dressage_llm_agent.template.render import render_reward
from dressage_llm_agent.template.reward_plan import plan_reward
from dressage_llm_agent.template.steering import Steering, read_notes, steer

_GOOD_ENOUGH = 0.9
# Largest factor between a weight and its first value.
_MAX_FACTOR = 8.0
# By criterion of the judge: terms of the reward with the factor for their weight, in the order of trial.
_HELP: Mapping[str, tuple[tuple[str, float], ...]] = {
    "speed": (("faster", 2.0), ("speed", 2.0), ("effort", 0.5), ("smooth", 0.5)),
    "direction": (("speed", 2.0), ("sideways", 2.0)),
    "sustained": (("speed", 1.5), ("alive", 2.0)),
    "posture": (("posture", 2.0), ("steady", 2.0), ("upright", 2.0)),
    "endurance": (("steady", 2.0), ("alive", 2.0), ("speed", 0.5), ("angle", 2.0)),
    "upright": (("upright", 2.0), ("angle", 2.0)),
    "still": (("still", 2.0),),
    "quiet": (("quiet", 2.0), ("effort", 2.0)),
    "place": (("place", 2.0),),
    "height": (("flight", 2.0), ("standing", 2.0), ("height", 2.0), ("effort", 0.5)),
    "flight": (("flight", 2.0), ("effort", 0.5)),
    "together": (("together", 2.0),),
    "turns": (("turning", 2.0), ("effort", 0.5)),
    "turning": (("turning", 2.0), ("effort", 0.5)),
    "aloft": (("aloft", 2.0),),
    "distance": (("close", 2.0), ("distance", 2.0), ("hand", 2.0), ("effort", 0.5)),
    "seat": (("seat", 2.0), ("effort", 0.5)),
    "soon": (("distance", 2.0), ("effort", 0.5)),
    "smooth": (("smooth", 3.0), ("effort", 2.0)),
    "energy": (("effort", 2.0),),
    "low": (("low", 2.0),),
    "heading": (("heading", 2.0),),
}
# Tried after the weights: more exploration, then smaller and longer steps.
_HYPERPARAMETERS: tuple[tuple[dict[str, HyperparameterValue], str], ...] = (
    ({"entropy_coef": 0.01}, "more exploration, as no change of weights is left that was not tried"),
    ({"learning_rate": 2e-4, "epochs": 10}, "smaller steps, as exploration did not help"),
)
# SAC tunes its exploration by itself.
_SAC_HYPERPARAMETERS: tuple[tuple[dict[str, HyperparameterValue], str], ...] = (
    ({"learning_rate": 1e-4}, "smaller steps, as no change of weights is left that was not tried"),
)


_PASSED = frozenset({session_pb2.STOP_REASON_PASSES_EARLY, session_pb2.STOP_REASON_PASSES})


@dataclass(frozen=True)
class _Change:
    criterion: str
    term: str
    factor: float


@dataclass(frozen=True)
class _OwnIteration:
    """A past iteration whose reward this author wrote, with its intent and its plan."""

    past: PastIteration
    intent: ParsedIntent
    plan: RewardPlan


def revise(task: agent_pb.ReviserTask) -> agent_pb.Revision:
    """Return the next reward to try.

    :raises FailedPrecondition: ``TEMPLATE_NO_REVISION`` if every known change was tried.
    :raises InvalidArgument: ``TEMPLATE_UNKNOWN_INTENT`` if the intent is unknown.
    """
    card = load_card(task.brief.environment)
    base = parse(task.brief.intent, card.id)
    history = [past_iteration(message) for message in task.history]
    written = [entry for past in history if (entry := _read(past, card, base)) is not None]
    if not written:
        raise _nothing("no iteration has a reward that it wrote, and it cannot change others")
    best = max(written, key=lambda entry: (entry.past.score or 0.0, entry.past.number))
    steering = read_notes(task.notes, best.intent)
    if steering.qualities:
        return _address_notes(task, best, steering, card)
    if why := _continuation_reason(task, best.past):
        return _continuation(task, best, why, steering=steering)
    for change in _changes(best.past.scores):
        revised = _apply(best.plan, change, start=plan_reward(best.intent, card))
        if revised is not None and not any(_same(revised, entry.plan) for entry in written):
            return _revision(task, best, revised, change, steering=steering)
    if task.tune_hyperparameters:
        for values, why in _SAC_HYPERPARAMETERS if task.algorithm == "sac" else _HYPERPARAMETERS:
            if not any(past.hyperparameters.items() >= values.items() for past in history):
                return _tuning(best, values, why, steering=steering)
    raise _nothing(f"every known change for the lowest criteria of iteration {best.past.number} was tried")


def _continuation_reason(task: agent_pb.ReviserTask, past: PastIteration) -> str:
    """Return why an iteration's training may achieve more if it continues; empty if it is not to continue.

    It continues once: an iteration that continued and is not better shows that more training does not help. Checkpoints are
    judged by code, so that they say nothing about a score to which a video judge contributed.
    """
    number = past.number
    by_number = {message.number: message for message in task.history}
    iteration, continued = by_number[number], {message.reward.warm_start.iteration for message in task.history}
    if number not in task.may_continue_from or iteration.name in continued:
        return ""
    course = iteration.reward.course
    if not course.HasField("early_stop"):
        rising = course.expected_steps < course.max_steps <= course.env_steps
        return f"its training reached the limit of {course.max_steps:,} steps while it improved" if rising else ""
    if course.early_stop.reason in _PASSED and "video" not in past.judged_by:
        return f"its training ended at checkpoints that passed, with {course.early_stop.score:.2f}"
    return ""


def read_weights(source: str, plan: RewardPlan) -> dict[str, float] | None:
    """Return the weights by term of a reward that this author wrote; None for any other source."""
    try:
        tree = syntax_tree(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == "reward"]
    if len(functions) != 1:
        return None
    weights: dict[str, float] = {}
    for node in functions[0].body:
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.BinOp(left=left, op=ast.Mult())):
                try:
                    weights[name] = float(ast.literal_eval(left))
                except (ValueError, TypeError):
                    return None
    return weights if set(weights) == {term.name for term in plan.terms} else None


def _read(past: PastIteration, card: EnvironmentCard, base: ParsedIntent) -> _OwnIteration | None:
    """Parse a past iteration's reward; None for a source that this author did not write.

    Its first line is the intent, which may include qualities from notes since the session began.
    """
    first = past.source.strip().partition("\n")[0].strip('"')
    try:
        intent = parse(first.removesuffix(f", in {card.id}."), card.id)
    except InvalidArgument:
        intent = base
    plan = plan_reward(intent, card)
    weights = read_weights(past.source, plan)
    if weights is None:
        return None
    terms = tuple(replace(term, weight=weights[term.name]) for term in plan.terms)
    return _OwnIteration(past, intent, RewardPlan(terms))


def _changes(scores: Mapping[str, float]) -> Iterator[_Change]:
    """Changes in the order of trial: those for the criterion with the lowest score first."""
    for criterion, score in sorted(scores.items(), key=lambda item: (item[1], item[0])):
        if score < _GOOD_ENOUGH:
            for term, factor in _HELP.get(criterion, ()):
                yield _Change(criterion, term, factor)


def _apply(plan: RewardPlan, change: _Change, *, start: RewardPlan) -> RewardPlan | None:
    """The plan with one changed weight; None without such a term, or if the weight would exceed its bounds."""
    begun = {term.name: abs(term.weight) for term in start.terms}
    if change.term not in begun:
        return None
    terms = tuple(
        replace(term, weight=term.weight * change.factor) if term.name == change.term else term for term in plan.terms
    )
    weight = next(abs(term.weight) for term in terms if term.name == change.term)
    if not 1 / _MAX_FACTOR <= weight / begun[change.term] <= _MAX_FACTOR:
        return None
    return RewardPlan(terms)


def _address_notes(
    task: agent_pb.ReviserTask, best: _OwnIteration, steering: Steering, card: EnvironmentCard
) -> agent_pb.Revision:
    intent, plan, changes = steer(best.intent, best.plan, steering.qualities, card)
    return agent_pb.Revision(
        diagnosis=f"Iteration {best.past.number} is the best so far." + steering.summary,
        lesson=f"The weights of iteration {best.past.number} stay while a note requests a quality.",
        planned_change=changes,
        source=render_reward(plan, intent),
        based_on=best.past.number,
        hyperparameters=_hyperparameters(task, best),
    )


def _revision(
    task: agent_pb.ReviserTask, best: _OwnIteration, plan: RewardPlan, change: _Change, *, steering: Steering
) -> agent_pb.Revision:
    number, score = best.past.number, best.past.scores[change.criterion]
    weight = next(term.weight for term in plan.terms if term.name == change.term)
    return agent_pb.Revision(
        diagnosis=f"In iteration {number}, the criterion {change.criterion} scored {score:.2f}." + steering.summary,
        lesson=f"The weights of iteration {number} give {change.criterion} too little.",
        planned_change=f"multiply the weight of {change.term} by {change.factor:g}, to {weight:g}",
        source=render_reward(plan, best.intent),
        based_on=number,
        hyperparameters=_hyperparameters(task, best),
    )


def _continuation(
    task: agent_pb.ReviserTask, best: _OwnIteration, why: str, *, steering: Steering
) -> agent_pb.Revision:
    number = best.past.number
    return agent_pb.Revision(
        diagnosis=f"Iteration {number} scored {best.past.score or 0.0:.2f}; {why}." + steering.summary,
        lesson=f"The reward of iteration {number} leads towards the behaviour.",
        planned_change=f"continue the training of iteration {number} with the same reward",
        source=best.past.source,
        based_on=number,
        hyperparameters=_hyperparameters(task, best),
        from_parent=True,
        start_reasoning=why,
    )


def _tuning(
    best: _OwnIteration, values: dict[str, HyperparameterValue], why: str, *, steering: Steering
) -> agent_pb.Revision:
    number = best.past.number
    changed = ", ".join(f"{name} = {value}" for name, value in values.items())
    return agent_pb.Revision(
        diagnosis=f"No change of weights is left to try from iteration {number}." + steering.summary,
        lesson="Changed weights alone do not achieve the behaviour.",
        planned_change=f"train with {changed}",
        source=render_reward(best.plan, best.intent),
        based_on=number,
        hyperparameters=hyperparameters_message({**best.past.hyperparameters, **values}),
        hyperparameter_reasoning=why,
    )


def _hyperparameters(task: agent_pb.ReviserTask, best: _OwnIteration) -> session_pb2.Hyperparameters | None:
    """The hyperparameters of the best iteration, if the session tunes them."""
    return hyperparameters_message(best.past.hyperparameters) if task.tune_hyperparameters else None


def _same(plan: RewardPlan, other: RewardPlan) -> bool:
    """Whether two rewards are equal up to rounding."""
    if [(term.name, term.expression) for term in plan.terms] != [(term.name, term.expression) for term in other.terms]:
        return False
    pairs = zip(plan.terms, other.terms, strict=True)
    return all(abs(one.weight - two.weight) <= 1e-6 * abs(one.weight) for one, two in pairs)


def _nothing(why: str) -> FailedPrecondition:
    message = f"template/v1 has no further revision: {why}; steer the session, or configure a language model"
    return FailedPrecondition(message, reason="TEMPLATE_NO_REVISION")
