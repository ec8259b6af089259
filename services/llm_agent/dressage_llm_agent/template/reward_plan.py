"""Plans a reward: the weighted terms of a parsed intent.

The terms are similar to the stock rewards, from which PPO learns (velocity, a bonus for each step, a small cost of control),
with one more term for each quality. Weights are balanced for speeds of a few m/s. `reward_terms` has the terms of single
behaviours.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from dressage.envs.cards import EnvironmentCard

from dressage_llm_agent.template import cart_pole_tasks, velocity_tasks
from dressage_llm_agent.template import reward_terms as terms
from dressage_llm_agent.template.abilities import (
    ANT,
    CART_POLE_TASKS,
    DOUBLE_PENDULUM,
    HALF_CHEETAH,
    HOPPER,
    HUMANOID,
    HUMANOID_STANDUP,
    INVERTED_PENDULUM,
    PUSHER,
    REACHER,
    SWIMMER,
    VELOCITY_TASKS,
    WALKER,
)
from dressage_llm_agent.template.intents import Kind, ParsedIntent
from dressage_llm_agent.template.plans import RewardPlan, Term
from dressage_llm_agent.template.targets import has, level, low_height, mean_squared_rate, standing_height

# Weights of the squared action, where actions differ in strength: plain (about the stock weight, if any), and with the quality
# `energy_saving`.
_EFFORT: Mapping[str, tuple[float, float]] = {
    HALF_CHEETAH: (0.1, 0.4),
    HOPPER: (0.001, 0.05),
    INVERTED_PENDULUM: (0.001, 0.03),
    WALKER: (0.001, 0.05),
    SWIMMER: (0.0001, 0.01),
    DOUBLE_PENDULUM: (0.001, 0.1),
    REACHER: (0.05, 0.3),
    ANT: (0.05, 0.3),
    HUMANOID: (0.1, 0.5),
    HUMANOID_STANDUP: (0.01, 0.1),
    PUSHER: (0.02, 0.1),
    **dict.fromkeys(VELOCITY_TASKS, (0.002, 0.02)),
    **dict.fromkeys(CART_POLE_TASKS, (0.01, 0.1)),
}

_Builders = Mapping[Kind, Callable[[ParsedIntent, EnvironmentCard], list[Term]]]
_BUILDERS: _Builders = {
    "move": terms.move,
    "stand": terms.stand,
    "jump": terms.jump,
    "flip": terms.flip,
    "spin": terms.spin,
    "reach": terms.reach,
    "push": terms.push,
    "rise": terms.rise,
    "sit": terms.sit,
    "balance": terms.balance,
}
_OF_PACKS: Mapping[str, _Builders] = {
    **dict.fromkeys(VELOCITY_TASKS, velocity_tasks.TERMS),
    **dict.fromkeys(CART_POLE_TASKS, cart_pole_tasks.TERMS),
}


def plan_reward(intent: ParsedIntent, card: EnvironmentCard) -> RewardPlan:
    """Return the terms of a reward for an intent."""
    parts = _OF_PACKS.get(card.id, _BUILDERS)[intent.kind](intent, card)
    if card.can_terminate:
        parts.append(_alive(intent, card))
    parts += _quality_terms(intent, card)
    if intent.environment in _EFFORT:
        parts.append(_effort(intent))
    return RewardPlan(tuple(parts))


def _quality_terms(intent: ParsedIntent, card: EnvironmentCard) -> list[Term]:
    parts = []
    if "smooth" in intent.qualities:
        change = mean_squared_rate("next_state.{name} - state.{name}", card)
        meaning = "cost of the mean squared change of joint rates in a step, (rad/s)^2"
        latex = r"\overline{(\Delta\dot q)^2}"
        parts.append(Term("smooth", -0.01, change, meaning, latex))
    if "upright" in intent.qualities and intent.kind != "balance":
        if has(card, "upright") or has(card, "root_gravity"):
            meaning, tilt = "cost of the tilt: 0 upright, 1 on the side", f"1.0 - {level('next_state', card)}"
            parts.append(Term("upright", -2.0, tilt, meaning, r"(1 - \cos\varphi)"))
        else:
            meaning = "cost of the squared pitch, rad^2"
            parts.append(Term("upright", -1.0, "np.square(next_state.pitch)", meaning, r"\varphi^2"))
    if "unturned" in intent.qualities and has(card, "yaw"):
        meaning = "cost of the squared heading, rad^2"
        parts.append(Term("unturned", -0.5, "np.square(next_state.yaw)", meaning, r"\psi^2"))
    if intent.low:
        low = low_height(card)
        span = standing_height(card) - low
        expression = f"np.maximum(next_state.z_position - {low:.3f}, 0.0) / {span:.3f}"
        meaning = f"cost of the torso's height above {low:.3f} m, in units of {span:.3f} m"
        parts.append(Term("low", -0.5, expression, meaning, rf"\max(z - {low:.3f}, 0) / {span:.3f}"))
    return parts


def _alive(intent: ParsedIntent, card: EnvironmentCard) -> Term:
    expression = f"np.ones_like(next_state.{'x_velocity' if has(card, 'x_velocity') else 'time'})"
    return Term(
        "alive",
        terms.alive_bonus(intent.environment),
        expression,
        "1 for every step before the episode ends",
        r"\mathbb{1}",
    )


def _effort(intent: ParsedIntent) -> Term:
    plain, saving = _EFFORT[intent.environment]
    weight = -(saving if "energy_saving" in intent.qualities else plain)
    meaning = "cost of the squared action, summed over the motors"
    return Term("effort", weight, "np.square(action).sum(-1)", meaning, r"\lVert a\rVert^2")
