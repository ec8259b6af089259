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
from dressage_llm_agent.template.abilities import ABILITIES
from dressage_llm_agent.template.intents import Kind, ParsedIntent
from dressage_llm_agent.template.plans import RewardPlan, Term
from dressage_llm_agent.template.targets import has, level, low_height, mean_squared_rate, standing_height

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
_FAMILIES: Mapping[str, _Builders] = {
    "": _BUILDERS,
    "velocity": velocity_tasks.TERMS,
    "cart_pole": cart_pole_tasks.TERMS,
}


def plan_reward(intent: ParsedIntent, card: EnvironmentCard) -> RewardPlan:
    """Return the terms of a reward for an intent."""
    able = ABILITIES[card.id]
    parts = _FAMILIES[able.family][intent.kind](intent, card)
    if card.can_terminate:
        parts.append(_alive(able.alive, card))
    parts += _quality_terms(intent, card)
    if able.effort is not None:
        plain, saving = able.effort
        meaning = "cost of the squared action, summed over the motors"
        weight = -(saving if "energy_saving" in intent.qualities else plain)
        parts.append(Term("effort", weight, "np.square(action).sum(-1)", meaning, r"\lVert a\rVert^2"))
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


def _alive(bonus: float, card: EnvironmentCard) -> Term:
    expression = f"np.ones_like(next_state.{'x_velocity' if has(card, 'x_velocity') else 'time'})"
    return Term("alive", bonus, expression, "1 for every step before the episode ends", r"\mathbb{1}")
