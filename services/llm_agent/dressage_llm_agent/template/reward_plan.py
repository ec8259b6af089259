"""A parsed intent to the weighted terms of a reward.

The terms keep close to the stock rewards that PPO is known to learn from (velocity, a bonus for being alive, a small cost of
control) and add one term for each quality. Weights are balanced for speeds of a few m/s.
"""

from __future__ import annotations

from dressage.envs.cards import EnvironmentCard

from dressage_llm_agent.template.intents import ParsedIntent
from dressage_llm_agent.template.plans import RewardPlan, Term
from dressage_llm_agent.template.targets import (
    foot_heights,
    joint_velocities,
    low_height,
    speed_target,
    standing_height,
)
from dressage_llm_agent.template.vocabulary import HALF_CHEETAH, HOPPER, INVERTED_PENDULUM

# Stock weights of the squared action for those that have one.
_EFFORT = {HALF_CHEETAH: 0.1, HOPPER: 0.001, INVERTED_PENDULUM: 0.001}
_SAVING_EFFORT = {HALF_CHEETAH: 0.4, HOPPER: 0.05, INVERTED_PENDULUM: 0.03}
_PLACE = {"rightward": 0.5, "leftward": -0.5}


def plan_reward(intent: ParsedIntent, card: EnvironmentCard) -> RewardPlan:
    """The terms that make a policy do what the intent asks for."""
    builders = {"move": _move, "stand": _stand, "jump": _jump, "balance": _balance}
    terms = builders[intent.kind](intent, card)
    if card.can_terminate:
        terms.append(_alive())
    return RewardPlan(tuple([*terms, *_quality_terms(intent, card), _effort(intent)]))


def _move(intent: ParsedIntent, card: EnvironmentCard) -> list[Term]:
    target = speed_target(intent)
    sign = "" if intent.direction > 0 else "-"
    way = "forward" if intent.direction > 0 else "backward"
    velocity = f"{sign}next_state.x_velocity"
    if target.hold:
        speed = Term(
            "speed",
            2.0,
            f"np.maximum(1.0 - np.abs({velocity} - {target.speed:g}) / {target.speed:g}, -1.0)",
            f"1 at {target.speed:g} m/s {way}, 0 at rest and at twice that, at least -1",
            rf"\max(1 - |{sign}v_x - {target.speed:g}| / {target.speed:g}, -1)",
        )
    else:
        speed = Term("speed", 1.0, velocity, f"{way} velocity, m/s", f"({sign}v_x)" if sign else "v_x")
    return [speed] if card.can_terminate else [speed, _posture()]


def _stand(intent: ParsedIntent, card: EnvironmentCard) -> list[Term]:
    still = Term("still", -0.5, "np.abs(next_state.x_velocity)", "cost of the speed, m/s", "|v_x|")
    place = Term("place", -0.1, "np.abs(next_state.x_position)", "cost of the distance from the start, m", "|x|")
    if card.can_terminate:
        return [still, place, _quiet(card)]
    return [still, place, _quiet(card), _posture()]


def _jump(intent: ParsedIntent, card: EnvironmentCard) -> list[Term]:
    lowest = f"next_state.{foot_heights(card)[0]}"
    for name in foot_heights(card)[1:]:
        lowest = f"np.minimum({lowest}, next_state.{name})"
    flight = Term(
        "flight",
        10.0,
        f"np.maximum({lowest}, 0.0)",
        "height of the lowest foot above the floor, m",
        r"\max(h_{foot}, 0)",
    )
    place = Term("place", -0.2, "np.abs(next_state.x_velocity)", "cost of the speed along the ground, m/s", "|v_x|")
    return [flight, place]


def _balance(intent: ParsedIntent, card: EnvironmentCard) -> list[Term]:
    places = intent.qualities & {"centred", *_PLACE}
    target = next((_PLACE[name] for name in places if name in _PLACE), 0.0)
    angle = Term(
        "angle",
        -2.0 if "upright" in intent.qualities else -1.0,
        "np.square(next_state.pole_angle / 0.2)",
        "cost of the squared angle of the pole, in units of 0.2 rad",
        r"(\theta / 0.2)^2",
    )
    place = Term(
        "place",
        -0.5 if places else -0.05,
        f"np.square(next_state.x_position - {target:g})" if target else "np.square(next_state.x_position)",
        f"cost of the squared distance of the cart from x = {target:g} m",
        rf"(x - {target:g})^2" if target else "x^2",
    )
    return [angle, place]


def _quality_terms(intent: ParsedIntent, card: EnvironmentCard) -> list[Term]:
    terms = []
    if "smooth" in intent.qualities:
        names = joint_velocities(card)
        changes = " + ".join(f"np.square(next_state.{name} - state.{name})" for name in names)
        meaning = "cost of the mean squared change of joint rates in a step, (rad/s)^2"
        latex = r"\overline{(\Delta\dot q)^2}"
        terms.append(Term("smooth", -0.01, f"({changes}) / {len(names)}.0", meaning, latex))
    if "upright" in intent.qualities and intent.kind != "balance":
        meaning = "cost of the squared pitch, rad^2"
        terms.append(Term("upright", -1.0, "np.square(next_state.pitch)", meaning, r"\varphi^2"))
    if "low" in intent.qualities:
        low = low_height(card)
        span = standing_height(card) - low
        expression = f"np.maximum(next_state.z_position - {low:.3f}, 0.0) / {span:.3f}"
        meaning = f"cost of the torso's height above {low:.3f} m, in units of {span:.3f} m"
        terms.append(Term("low", -0.5, expression, meaning, rf"\max(z - {low:.3f}, 0) / {span:.3f}"))
    return terms


def _alive() -> Term:
    expression = "np.ones_like(next_state.x_velocity)"
    return Term("alive", 1.0, expression, "1 for every step before the episode ends", r"\mathbb{1}")


def _posture() -> Term:
    """Zero in any running posture, so that it does not disturb the gait, and a steep cost of lying on the back."""
    expression = "np.minimum(np.cos(next_state.pitch), 0.5) - 0.5"
    meaning = "0 while the body is within 60 degrees of level, down to -1.5 upside down"
    return Term("posture", 1.0, expression, meaning, r"(\min(\cos\varphi, 0.5) - 0.5)")


def _quiet(card: EnvironmentCard) -> Term:
    names = joint_velocities(card)
    squares = " + ".join(f"np.square(next_state.{name})" for name in names)
    meaning = "cost of the mean squared joint rate, (rad/s)^2"
    return Term("quiet", -0.02, f"({squares}) / {len(names)}.0", meaning, r"\overline{\dot q^2}")


def _effort(intent: ParsedIntent) -> Term:
    weights = _SAVING_EFFORT if "energy_saving" in intent.qualities else _EFFORT
    weight = -weights[intent.environment]
    meaning = "cost of the squared action, summed over the motors"
    return Term("effort", weight, "np.square(action).sum(-1)", meaning, r"\lVert a\rVert^2")
