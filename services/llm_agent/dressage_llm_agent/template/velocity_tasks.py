"""Rewards and criteria of legged robots in the velocity tasks of environment packs.

Velocities are those of the base in its own frame: the robot starts with any heading, and its tasks turn it. The task's own
command is not followed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from dressage.envs.cards import EnvironmentCard

from dressage_llm_agent.template.intents import Kind, ParsedIntent
from dressage_llm_agent.template.judge_grades import place_grade, rate_grade
from dressage_llm_agent.template.plans import Grade, Term, grade
from dressage_llm_agent.template.reward_terms import bounded_speed, quiet, rate_term
from dressage_llm_agent.template.targets import mean_squared_rate, speed_target, spin_target

_SPEED_WEIGHT = 2.0
_SHORTEST = 5.0  # seconds; the motion of a shorter recording counts in proportion
_WAYS = {"forward": "forwards", "backward": "backwards", "left": "to the left", "right": "to the right"}


def _velocity(intent: ParsedIntent, owner: str) -> tuple[str, str]:
    """Return the velocities along the direction and across it, as Python."""
    along, across = (0, 1) if intent.axis == "x" else (1, 0)
    sign = "" if intent.sign > 0 else "-"
    return f"{sign}{owner}.root_velocity[:, {along}]", f"{owner}.root_velocity[:, {across}]"


def _move_terms(intent: ParsedIntent, card: EnvironmentCard) -> list[Term]:
    along, across = _velocity(intent, "next_state")
    target, symbol = speed_target(intent), f"{'' if intent.sign > 0 else '-'}v_{intent.axis}"
    if target.hold:
        speed = rate_term(
            "speed", along, target, way=intent.direction, unit="m/s", symbol=symbol, held_weight=_SPEED_WEIGHT
        )
    else:
        speed = bounded_speed(along, target.speed, way=intent.direction, weight=_SPEED_WEIGHT, symbol=symbol)
    return [
        speed,
        Term("sideways", -0.2, f"np.abs({across})", "cost of the speed across, m/s", r"|v_\perp|"),
        Term(
            "heading",
            -0.5 if "unturned" in intent.qualities else -0.1,
            "np.square(next_state.root_angular_velocity[:, 2])",
            "cost of the squared rate of turning about the vertical, (rad/s)^2",
            r"\omega_z^2",
        ),
    ]


def _stand_terms(intent: ParsedIntent, card: EnvironmentCard) -> list[Term]:
    speed = "np.square(next_state.root_velocity).sum(-1) + np.square(next_state.root_angular_velocity).sum(-1)"
    meaning = "cost of the squared velocity of the base, (m/s)^2, and of its rate of turning, (rad/s)^2"
    return [Term("still", -0.5, speed, meaning, r"(|v|^2 + |\omega|^2)"), quiet(card)]


def _spin_terms(intent: ParsedIntent, card: EnvironmentCard) -> list[Term]:
    sign = "-" if intent.direction == "right" else ""
    rate, target = f"{sign}next_state.root_angular_velocity[:, 2]", spin_target(intent)
    way, symbol = "clockwise" if sign else "counterclockwise", rf"{sign}\omega_z"
    if target.hold:
        turning = rate_term("turning", rate, target, way=way, unit="rad/s", symbol=symbol)
    else:
        turning = Term(
            "turning",
            _SPEED_WEIGHT,
            f"np.minimum({rate} / {target.speed:g}, 1.25)",
            f"1 at {target.speed:g} rad/s {way}, 0 at rest, at most 1.25",
            rf"\min({symbol} / {target.speed:g}, 1.25)",
        )
    drift = "np.square(next_state.root_velocity[:, :2]).sum(-1)"
    return [turning, Term("place", -0.5, drift, "cost of the squared speed along the ground, (m/s)^2", r"|v_{xy}|^2")]


def _move_grades(intent: ParsedIntent, card: EnvironmentCard) -> list[Grade]:
    along, _ = _velocity(intent, "trajectory")
    target, way = speed_target(intent), _WAYS[intent.direction]
    half = 0.5 * target.speed
    share = "full marks from 0.8"
    strict = "unturned" in intent.qualities
    return [
        rate_grade("speed", _mean(along), target, evidence="mean_velocity_m_s", unit="m/s", way=way),
        grade(
            "direction",
            f"({along}).mean() / max(float(np.sqrt(np.square(trajectory.root_velocity[:, :2]).sum(-1)).mean()), 1e-9)",
            0.2,
            0.8,
            "mean_velocity_by_mean_speed",
            f"keeps going {way}",
            f"mean velocity {way} by the mean speed along the ground: {share}, none below 0.2",
            "gait",
            exponent=0.3,
            floor=0.1,
        ),
        grade(
            "sustained",
            f"np.mean([1.0 * (float(np.mean(second)) >= {half:g}) for second in seconds_of({along})])",
            0.0,
            0.8,
            "share_of_seconds_in_motion",
            "keeps up the speed",
            f"share of seconds with at least {half:g} m/s {way}: {share}",
            "stability",
            exponent=0.5,
            floor=0.1,
        ),
        grade(
            "heading",
            "np.abs([float(np.mean(second)) for second in seconds_of(trajectory.root_angular_velocity[:, 2])]).mean()",
            1.0,
            0.3,
            "mean_rate_of_turning_by_second_rad_s",
            "keeps its heading",
            "mean rate of turning over a second, either way: full marks up to 0.3 rad/s, none from 1 rad/s",
            "posture",
            exponent=1.0 if strict else 0.3,
            floor=0.0 if strict else 0.1,
        ),
    ]


def _stand_grades(intent: ParsedIntent, card: EnvironmentCard) -> list[Grade]:
    return [
        grade(
            "still",
            "np.sqrt(np.square(trajectory.root_velocity).sum(-1)).mean()",
            0.5,
            0.15,
            "mean_speed_m_s",
            "base at rest",
            "mean speed of the base: full marks up to 0.15 m/s, none from 0.5 m/s",
            "stability",
        ),
        grade(
            "quiet",
            f"np.sqrt({mean_squared_rate('trajectory.{name}', card)}).mean()",
            5.0,
            1.0,
            "mean_joint_rate_rad_s",
            "joints at rest",
            "mean joint rate: full marks up to 1 rad/s, none from 5 rad/s",
            "stability",
            exponent=0.5,
            floor=0.1,
        ),
        _stays(),
    ]


def _spin_grades(intent: ParsedIntent, card: EnvironmentCard) -> list[Grade]:
    rate = _mean("trajectory.root_angular_velocity[:, 2]")
    measure = {"left": rate, "right": f"-{rate}"}.get(intent.direction, f"abs({rate})")
    way = {"left": "to the left", "right": "to the right"}.get(intent.direction, "either way")
    target = spin_target(intent)
    return [rate_grade("turning", measure, target, evidence="mean_rate_rad_s", unit="rad/s", way=way), _stays()]


def _mean(rate: str) -> str:
    return f"({rate}).sum() * STEP / max(seconds, {_SHORTEST:g})"


def _stays() -> Grade:
    return place_grade(
        "np.sqrt(np.square(trajectory.root_position[:, :2] - trajectory.root_position[0, :2]).sum(-1)).max()"
    )


TERMS: Mapping[Kind, Callable[[ParsedIntent, EnvironmentCard], list[Term]]] = {
    "move": _move_terms,
    "stand": _stand_terms,
    "spin": _spin_terms,
}
"""Terms of a reward by kind of behaviour, without those of qualities."""
GRADES: Mapping[Kind, Callable[[ParsedIntent, EnvironmentCard], list[Grade]]] = {
    "move": _move_grades,
    "stand": _stand_grades,
    "spin": _spin_grades,
}
"""Criteria of a judge by kind of behaviour, without those of qualities."""
