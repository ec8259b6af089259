"""Reward and criteria of balancing in the cart-pole tasks of environment packs.

The pole turns freely, and an episode continues when it falls; it ends when the cart leaves the rail. The terms are bounded so
that every step earns more than 0: otherwise leaving the rail would pay.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from dressage.envs.cards import EnvironmentCard

from dressage_llm_agent.template.intents import Kind, ParsedIntent
from dressage_llm_agent.template.plans import Grade, Term, grade
from dressage_llm_agent.template.reward_terms import PLACES

_CART, _POLE = "joint_positions[:, 0]", "joint_positions[:, 1]"


def _place(intent: ParsedIntent) -> tuple[str, str, bool]:
    """Return the cart's distance from its place, as Python with ``{owner}``, the place, and whether the intent names it."""
    named = intent.qualities & {"centred", *PLACES}
    target = next((PLACES[name] for name in named if name in PLACES), 0.0)
    distance = f"{{owner}}.{_CART} - {target:g}" if target else f"{{owner}}.{_CART}"
    return f"np.abs({distance})", f"x = {target:g} m", bool(named)


def _balance_terms(intent: ParsedIntent, card: EnvironmentCard) -> list[Term]:
    distance, place, named = _place(intent)
    return [
        Term(
            "angle",
            2.0 if "upright" in intent.qualities else 1.0,
            f"0.5 + 0.5 * np.cos(next_state.{_POLE})",
            "1 with the pole upright, 0 with the pole hanging",
            r"(1 + \cos\theta) / 2",
        ),
        Term(
            "place",
            -0.1 if named else -0.02,
            distance.format(owner="next_state"),
            f"cost of the distance of the cart from {place}",
            r"|x - x_0|",
        ),
        Term(
            "calm",
            -0.005,
            "np.minimum(np.square(next_state.joint_velocities[:, 1]), 50.0)",
            "cost of the squared rate of the pole, (rad/s)^2, at most 50",
            r"\min(\dot\theta^2, 50)",
        ),
    ]


def _balance_grades(intent: ParsedIntent, card: EnvironmentCard) -> list[Grade]:
    distance, place, named = _place(intent)
    half = "[len(trajectory.time) // 2 :].mean()"
    parts = [
        grade(
            "upright",
            f"np.cos(trajectory.{_POLE}){half}",
            0.5,
            0.95,
            "mean_cosine_in_the_second_half",
            "pole upright",
            "mean cosine of the pole's angle in the second half of the episode: full marks from 0.95, none below 0.5",
            "posture",
        )
    ]
    if named:
        parts.append(
            grade(
                "place",
                f"{distance.format(owner='trajectory')}{half}",
                1.0,
                0.3,
                "mean_distance_from_place_m",
                f"cart near {place}",
                f"mean distance of the cart from {place} in the second half: full marks up to 0.3 m, none from 1 m",
                "stability",
                exponent=0.5,
                floor=0.1,
            )
        )
    return parts


TERMS: Mapping[Kind, Callable[[ParsedIntent, EnvironmentCard], list[Term]]] = {"balance": _balance_terms}
"""Terms of a reward by kind of behaviour, without those of qualities."""
GRADES: Mapping[Kind, Callable[[ParsedIntent, EnvironmentCard], list[Grade]]] = {"balance": _balance_grades}
"""Criteria of a judge by kind of behaviour, without those of qualities."""
