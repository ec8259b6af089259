"""The template author's revisions: a judgment's worst criterion to a changed weight.

It starts from the best iteration so far. A steering note that asks for a quality it knows comes first: see `steering`. Else it
tries, in order of how badly each criterion failed, the change that would help it, passing over every change that has been
tried. The weights are read off the reward's source, and the intent off its first line, so a revision of a revision builds on
it. When no change is left it says so: an error the orchestrator turns into an exhausted session.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from dressage.envs.cards import EnvironmentCard, load_card
from dressage.errors import FailedPrecondition, InvalidArgument

from dressage_llm_agent.tasks import HyperparameterValue, PastIteration, ReviserTask, Revision
from dressage_llm_agent.template.intents import ParsedIntent
from dressage_llm_agent.template.parser import parse
from dressage_llm_agent.template.plans import RewardPlan
from dressage_llm_agent.template.render import render_reward
from dressage_llm_agent.template.reward_plan import plan_reward
from dressage_llm_agent.template.steering import Steering, read_notes, steered

_GOOD_ENOUGH = 0.9
# Weights are not driven further than this from where they began.
_MAX_FACTOR = 8.0
# What helps a criterion of the judge: terms of the reward with the factor for their weight, tried in this order.
_HELP: Mapping[str, tuple[tuple[str, float], ...]] = {
    "speed": (("speed", 2.0), ("effort", 0.5), ("smooth", 0.5)),
    "direction": (("speed", 2.0), ("sideways", 2.0)),
    "sustained": (("speed", 1.5), ("alive", 2.0)),
    "posture": (("posture", 2.0), ("upright", 2.0)),
    "endurance": (("alive", 2.0), ("speed", 0.5), ("angle", 2.0)),
    "upright": (("upright", 2.0), ("angle", 2.0)),
    "still": (("still", 2.0),),
    "quiet": (("quiet", 2.0), ("effort", 2.0)),
    "place": (("place", 2.0),),
    "height": (("flight", 2.0), ("height", 2.0), ("effort", 0.5)),
    "flight": (("flight", 2.0), ("effort", 0.5)),
    "together": (("together", 2.0),),
    "turns": (("turning", 2.0), ("effort", 0.5)),
    "turning": (("turning", 2.0), ("effort", 0.5)),
    "aloft": (("aloft", 2.0),),
    "distance": (("close", 2.0), ("distance", 2.0), ("effort", 0.5)),
    "soon": (("distance", 2.0), ("effort", 0.5)),
    "smooth": (("smooth", 3.0), ("effort", 2.0)),
    "energy": (("effort", 2.0),),
    "low": (("low", 2.0),),
}
# Tried once the weights are: more exploration, then smaller and longer steps.
_HYPERPARAMETERS: tuple[tuple[dict[str, HyperparameterValue], str], ...] = (
    ({"entropy_coef": 0.01}, "more exploration, as no change of weights is left that was not tried"),
    ({"learning_rate": 2e-4, "epochs": 10}, "smaller steps, as exploration did not help"),
)
# SAC tunes its exploration by itself.
_SAC_HYPERPARAMETERS: tuple[tuple[dict[str, HyperparameterValue], str], ...] = (
    ({"learning_rate": 1e-4}, "smaller steps, as no change of weights is left that was not tried"),
)


@dataclass(frozen=True)
class _Change:
    criterion: str
    term: str
    factor: float


@dataclass(frozen=True)
class _Known:
    """A past iteration whose reward this author wrote: what it meant and how it weighed it."""

    past: PastIteration
    intent: ParsedIntent
    plan: RewardPlan


def revise(task: ReviserTask) -> Revision:
    """The next reward to try.

    :raises FailedPrecondition: ``TEMPLATE_NO_REVISION`` where nothing is known that has not been tried.
    :raises InvalidArgument: ``TEMPLATE_UNKNOWN_INTENT`` where the intent is not the template's.
    """
    card = load_card(task.brief.environment)
    base = parse(task.brief.intent, card.id)
    written = [known for past in task.history if (known := _read(past, card, base)) is not None]
    if not written:
        raise _nothing("no iteration has a reward of its own making, and it cannot change others")
    best = max(written, key=lambda known: (known.past.score or 0.0, known.past.number))
    steering = read_notes(task.notes, best.intent)
    if steering.qualities:
        return _heed(task, best, steering, card)
    for change in _changes(best.past.scores):
        revised = _apply(best.plan, change, start=plan_reward(best.intent, card))
        if revised is not None and not any(_same(revised, known.plan) for known in written):
            return _revision(task, best, revised, change, steering=steering)
    if task.tune_hyperparameters:
        for values, why in _SAC_HYPERPARAMETERS if task.algorithm == "sac" else _HYPERPARAMETERS:
            if not any(past.hyperparameters.items() >= values.items() for past in task.history):
                return _tuning(best, values, why, steering=steering)
    raise _nothing(f"every change it knows for the worst criteria of iteration {best.past.number} has been tried")


def read_weights(source: str, plan: RewardPlan) -> dict[str, float] | None:
    """Weights by term of a reward that this author wrote; None for any other source."""
    try:
        tree = ast.parse(source)
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


def _read(past: PastIteration, card: EnvironmentCard, base: ParsedIntent) -> _Known | None:
    """What a past iteration's reward meant; None for a source that this author did not write.

    Its first line says the intent, to which notes may have added since the session began.
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
    return _Known(past, intent, RewardPlan(terms))


def _changes(scores: Mapping[str, float]) -> Iterator[_Change]:
    """Changes in the order in which they are tried: the worst criterion first."""
    for criterion, score in sorted(scores.items(), key=lambda item: (item[1], item[0])):
        if score < _GOOD_ENOUGH:
            for term, factor in _HELP.get(criterion, ()):
                yield _Change(criterion, term, factor)


def _apply(plan: RewardPlan, change: _Change, *, start: RewardPlan) -> RewardPlan | None:
    """The plan with one weight changed; None where it has no such term or the weight would leave its bounds."""
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


def _heed(task: ReviserTask, best: _Known, steering: Steering, card: EnvironmentCard) -> Revision:
    intent, plan, changes = steered(best.intent, best.plan, steering.qualities, card)
    return Revision(
        diagnosis=f"Iteration {best.past.number} is the best so far." + steering.said,
        lesson=f"What iteration {best.past.number} learnt is kept where a person asks for more.",
        planned_change=changes,
        source=render_reward(plan, intent),
        based_on=best.past.number,
        hyperparameters=dict(best.past.hyperparameters) if task.tune_hyperparameters else {},
    )


def _revision(task: ReviserTask, best: _Known, plan: RewardPlan, change: _Change, *, steering: Steering) -> Revision:
    number, score = best.past.number, best.past.scores[change.criterion]
    weight = next(term.weight for term in plan.terms if term.name == change.term)
    return Revision(
        diagnosis=f"Of iteration {number}, the criterion {change.criterion} scored {score:.2f}." + steering.said,
        lesson=f"The weights of iteration {number} give {change.criterion} too little.",
        planned_change=f"multiply the weight of {change.term} by {change.factor:g}, to {weight:g}",
        source=render_reward(plan, best.intent),
        based_on=number,
        hyperparameters=dict(best.past.hyperparameters) if task.tune_hyperparameters else {},
    )


def _tuning(best: _Known, values: dict[str, HyperparameterValue], why: str, *, steering: Steering) -> Revision:
    number = best.past.number
    changed = ", ".join(f"{name} = {value}" for name, value in values.items())
    return Revision(
        diagnosis=f"No change of weights is left to try from iteration {number}." + steering.said,
        lesson="The weights alone do not bring the behaviour.",
        planned_change=f"train with {changed}",
        source=render_reward(best.plan, best.intent),
        based_on=number,
        hyperparameters={**best.past.hyperparameters, **values},
        hyperparameter_reasoning=why,
    )


def _same(plan: RewardPlan, other: RewardPlan) -> bool:
    """Whether two rewards are the same but for rounding."""
    if [(term.name, term.expression) for term in plan.terms] != [(term.name, term.expression) for term in other.terms]:
        return False
    pairs = zip(plan.terms, other.terms, strict=True)
    return all(abs(one.weight - two.weight) <= 1e-6 * abs(one.weight) for one, two in pairs)


def _nothing(why: str) -> FailedPrecondition:
    message = f"the built-in author knows no better reward: {why}"
    return FailedPrecondition(message, reason="TEMPLATE_NO_REVISION")
