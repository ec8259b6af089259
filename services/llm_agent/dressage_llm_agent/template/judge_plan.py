"""A parsed intent to the graded criteria of a judge.

What the behaviour cannot be without (moving, staying up, leaving the ground) has floor 0 and exponent 1, so that a policy that
does not do it at all scores 0, however well it stands. Everything else can pull the score down, but not lift it.
"""

from __future__ import annotations

from dressage.envs.cards import EnvironmentCard

from dressage_llm_agent.template.intents import ParsedIntent
from dressage_llm_agent.template.plans import Grade, JudgePlan
from dressage_llm_agent.template.targets import (
    foot_heights,
    joint_velocities,
    low_height,
    speed_target,
    standing_height,
)

_ALL_CONTROLS = ("random", "untrained", "motionless", "time_reversed")
_PLACE = {"rightward": 0.5, "leftward": -0.5}


def plan_judge(intent: ParsedIntent, card: EnvironmentCard) -> JudgePlan:
    """The criteria by which a recorded episode shows what the intent asks for."""
    builders = {"move": _move, "stand": _stand, "jump": _jump, "balance": _balance}
    grades = builders[intent.kind](intent, card)
    if card.can_terminate:
        grades.append(_endurance(card))
    grades += _quality_grades(intent, card)
    controls, reasoning = _null_controls(intent, card)
    return JudgePlan(tuple(grades), controls, reasoning)


def _null_controls(intent: ParsedIntent, card: EnvironmentCard) -> tuple[tuple[str, ...], str]:
    if intent.kind == "move":
        return _ALL_CONTROLS, "none of them moves in the direction asked for at the speed asked for"
    if intent.kind == "stand" and card.can_terminate:
        return (
            "random",
            "untrained",
        ), "each falls at once; doing nothing stands for a while, and backwards it looks alike"
    if card.can_terminate:
        controls = ("random", "untrained", "motionless")
        return controls, "none of them does it or stays up; played backwards, the behaviour looks alike"
    return ("random",), "to be still is what is asked for; played backwards, it looks alike"


def _move(intent: ParsedIntent, card: EnvironmentCard) -> list[Grade]:
    target = speed_target(intent)
    sign = "" if intent.direction > 0 else "-"
    way = "forwards" if intent.direction > 0 else "backwards"
    speed, half = target.speed, 0.5 * target.speed
    if target.hold:
        measure = f"1.0 - abs({sign}mean_velocity - {speed:g}) / {speed:g}"
        about = f"mean velocity {way}: full marks within 15 % of {speed:g} m/s, none 50 % off"
        main = _grade(
            "speed", measure, 0.5, 0.85, "closeness_to_target_speed", f"{speed:g} m/s {way}", about, "dynamics"
        )
    else:
        about = f"mean velocity {way}: full marks from {speed:g} m/s, none below {0.1 * speed:g} m/s"
        title = f"{speed:g} m/s {way}"
        main = _grade(
            "speed", f"{sign}mean_velocity", 0.1 * speed, speed, "mean_velocity_m_s", title, about, "dynamics"
        )
    return [
        main,
        _grade(
            "direction",
            f"{sign}(x[-1] - x[0]) / max(float(np.abs(np.diff(x)).sum()), 1e-9)",
            0.2,
            0.9,
            "net_distance_by_path_length",
            f"keeps going {way}",
            f"net distance {way} by the length of the path: full marks from 0.9",
            "gait",
            exponent=0.3,
            floor=0.1,
        ),
        _grade(
            "sustained",
            f"np.mean(1.0 * ({sign}velocity_by_second >= {half:g}))",
            0.0,
            0.8,
            "share_of_seconds_in_motion",
            "keeps up the speed",
            f"share of seconds with at least {half:g} m/s {way}: full marks from 0.8",
            "stability",
            exponent=0.5,
            floor=0.1,
        ),
        _posture(),
    ]


def _stand(intent: ParsedIntent, card: EnvironmentCard) -> list[Grade]:
    names = joint_velocities(card)
    squares = " + ".join(f"np.square(trajectory.{name})" for name in names)
    return [
        _grade(
            "still",
            "np.sqrt(np.square(trajectory.x_velocity) + np.square(trajectory.z_velocity)).mean()",
            0.5,
            0.15,
            "mean_speed_m_s",
            "torso at rest",
            "mean speed of the torso: full marks up to 0.15 m/s, none from 0.5 m/s",
            "stability",
        ),
        _grade(
            "quiet",
            f"np.sqrt(({squares}) / {len(names)}.0).mean()",
            5.0,
            1.0,
            "mean_joint_rate_rad_s",
            "joints at rest",
            "mean joint rate: full marks up to 1 rad/s, none from 5 rad/s",
            "stability",
            exponent=0.5,
            floor=0.1,
        ),
        _grade(
            "place",
            "np.abs(x - x[0]).max()",
            2.0,
            0.5,
            "largest_distance_from_start_m",
            "stays where it is",
            "largest distance from the start: full marks up to 0.5 m, none from 2 m",
            "stability",
            exponent=0.5,
            floor=0.1,
        ),
        _posture(),
    ]


def _jump(intent: ParsedIntent, card: EnvironmentCard) -> list[Grade]:
    lowest = f"trajectory.{foot_heights(card)[0]}"
    for name in foot_heights(card)[1:]:
        lowest = f"np.minimum({lowest}, trajectory.{name})"
    return [
        _grade(
            "height",
            f"np.mean([float(np.max(second)) for second in seconds_of({lowest})])",
            0.02,
            0.25,
            "mean_highest_clearance_by_second_m",
            "jumps high, again and again",
            "highest clearance of the feet in each second, averaged: full marks from 0.25 m, none below 0.02 m",
            "dynamics",
        ),
        _grade(
            "place",
            "abs(mean_velocity)",
            1.0,
            0.3,
            "mean_drift_m_s",
            "stays in place",
            "drift along the ground: full marks up to 0.3 m/s, none from 1 m/s",
            "stability",
            exponent=0.5,
            floor=0.1,
        ),
    ]


def _balance(intent: ParsedIntent, card: EnvironmentCard) -> list[Grade]:
    places = intent.qualities & {"centred", *_PLACE}
    target = next((_PLACE[name] for name in places if name in _PLACE), 0.0)
    best = 0.02 if "upright" in intent.qualities else 0.05
    grades = [
        _grade(
            "upright",
            "np.abs(trajectory.pole_angle).mean()",
            0.15,
            best,
            "mean_pole_angle_rad",
            "pole upright",
            f"mean angle of the pole: full marks up to {best:g} rad, none from 0.15 rad",
            "posture",
            exponent=0.5,
            floor=0.1,
        )
    ]
    if places:
        grades.append(
            _grade(
                "place",
                f"np.abs(x - {target:g}).mean()",
                0.5,
                0.15,
                "mean_distance_from_place_m",
                f"cart near x = {target:g} m",
                f"mean distance of the cart from x = {target:g} m: full marks up to 0.15 m, none from 0.5 m",
                "stability",
                exponent=0.5,
                floor=0.1,
            )
        )
    return grades


def _quality_grades(intent: ParsedIntent, card: EnvironmentCard) -> list[Grade]:
    grades = []
    span = max(part.high for part in card.action)
    if "smooth" in intent.qualities:
        about = "mean change of the action in a step, as a share of its bound: full marks up to 0.25, none from 0.9"
        measure = f"np.abs(np.diff(trajectory.action, axis=0)).mean() / {span:g}"
        grades.append(_quality("smooth", measure, 0.9, 0.25, "mean_action_change", "moves smoothly", about, "gait"))
    if "energy_saving" in intent.qualities:
        about = "mean squared action, as a share of its bound's: full marks up to 0.3, none from 0.9"
        measure = f"np.square(trajectory.action).mean() / {span * span:g}"
        title = "spends little energy"
        grades.append(_quality("energy", measure, 0.9, 0.3, "mean_squared_action", title, about, "efficiency"))
    if "upright" in intent.qualities and intent.kind != "balance":
        about = "mean absolute pitch: full marks up to 0.3 rad, none from 1 rad"
        measure = "np.abs(trajectory.pitch).mean()"
        grades.append(_quality("upright", measure, 1.0, 0.3, "mean_pitch_rad", "stays upright", about, "posture"))
    if "low" in intent.qualities:
        low, high = low_height(card), standing_height(card)
        about = f"mean height of the torso: full marks up to {low:.3f} m, none from {high:.3f} m"
        measure = "trajectory.z_position.mean()"
        grades.append(_quality("low", measure, high, low, "mean_height_m", "keeps low", about, "posture"))
    return grades


def _endurance(card: EnvironmentCard) -> Grade:
    about = "share of the episode before it ends by a fall: full marks if it does not"
    return _grade("endurance", "survived", 0.0, 1.0, "share_of_episode_survived", "does not fall", about, "stability")


def _posture() -> Grade:
    about = "share of the time within 60 degrees of level: full marks from 0.95, none below 0.5"
    measure = "np.mean(1.0 * (np.cos(trajectory.pitch) > 0.5))"
    evidence = "share_of_time_right_way_up"
    return _grade("posture", measure, 0.5, 0.95, evidence, "right way up", about, "posture", exponent=0.5, floor=0.1)


def _quality(
    name: str, measure: str, low: float, high: float, evidence: str, title: str, description: str, category: str
) -> Grade:
    return _grade(name, measure, low, high, evidence, title, description, category, exponent=0.3, floor=0.1)


def _grade(
    name: str,
    measure: str,
    low: float,
    high: float,
    evidence: str,
    title: str,
    description: str,
    category: str,
    *,
    exponent: float = 1.0,
    floor: float = 0.0,
) -> Grade:
    return Grade(name, measure, low, high, exponent, floor, evidence, title, description, category)
