"""A parsed intent to the weighted terms of a reward.

The terms keep close to the stock rewards that PPO is known to learn from (velocity, a bonus for being alive, a small cost of
control) and add one term for each quality. Weights are balanced for speeds of a few m/s. `reward_terms` has the terms of
single behaviours.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from dressage.envs.cards import EnvironmentCard

from dressage_llm_agent.template import reward_terms as terms
from dressage_llm_agent.template.abilities import (
    DOUBLE_PENDULUM,
    HALF_CHEETAH,
    HOPPER,
    INVERTED_PENDULUM,
    REACHER,
    SWIMMER,
    WALKER,
)
from dressage_llm_agent.template.intents import Kind, ParsedIntent
from dressage_llm_agent.template.plans import RewardPlan, Term
from dressage_llm_agent.template.targets import joint_velocities, low_height, standing_height

# Costs of the squared action: plain (about the stock one, where there is one), and where energy is to be saved.
_EFFORT: Mapping[str, tuple[float, float]] = {
    HALF_CHEETAH: (0.1, 0.4),
    HOPPER: (0.001, 0.05),
    INVERTED_PENDULUM: (0.001, 0.03),
    WALKER: (0.001, 0.05),
    SWIMMER: (0.0001, 0.01),
    DOUBLE_PENDULUM: (0.001, 0.1),
    REACHER: (0.05, 0.3),
}

_BUILDERS: Mapping[Kind, Callable[[ParsedIntent, EnvironmentCard], list[Term]]] = {
    "move": terms.move,
    "stand": terms.stand,
    "jump": terms.jump,
    "flip": terms.flip,
    "spin": terms.spin,
    "reach": terms.reach,
    "balance": terms.balance,
}


def plan_reward(intent: ParsedIntent, card: EnvironmentCard) -> RewardPlan:
    """The terms that make a policy do what the intent asks for."""
    parts = _BUILDERS[intent.kind](intent, card)
    if card.can_terminate:
        parts.append(_alive())
    return RewardPlan(tuple([*parts, *_quality_terms(intent, card), _effort(intent)]))


def _quality_terms(intent: ParsedIntent, card: EnvironmentCard) -> list[Term]:
    parts = []
    if "smooth" in intent.qualities:
        names = joint_velocities(card)
        changes = " + ".join(f"np.square(next_state.{name} - state.{name})" for name in names)
        meaning = "cost of the mean squared change of joint rates in a step, (rad/s)^2"
        latex = r"\overline{(\Delta\dot q)^2}"
        parts.append(Term("smooth", -0.01, f"({changes}) / {len(names)}.0", meaning, latex))
    if "upright" in intent.qualities and intent.kind != "balance":
        meaning = "cost of the squared pitch, rad^2"
        parts.append(Term("upright", -1.0, "np.square(next_state.pitch)", meaning, r"\varphi^2"))
    if intent.low:
        low = low_height(card)
        span = standing_height(card) - low
        expression = f"np.maximum(next_state.z_position - {low:.3f}, 0.0) / {span:.3f}"
        meaning = f"cost of the torso's height above {low:.3f} m, in units of {span:.3f} m"
        parts.append(Term("low", -0.5, expression, meaning, rf"\max(z - {low:.3f}, 0) / {span:.3f}"))
    return parts


def _alive() -> Term:
    expression = "np.ones_like(next_state.x_velocity)"
    return Term("alive", 1.0, expression, "1 for every step before the episode ends", r"\mathbb{1}")


def _effort(intent: ParsedIntent) -> Term:
    plain, saving = _EFFORT[intent.environment]
    weight = -(saving if "energy_saving" in intent.qualities else plain)
    meaning = "cost of the squared action, summed over the motors"
    return Term("effort", weight, "np.square(action).sum(-1)", meaning, r"\lVert a\rVert^2")
