"""The criteria of each behaviour, without those of its qualities."""

from __future__ import annotations

from dressage.envs.cards import EnvironmentCard

from dressage_llm_agent.template.abilities import ABILITIES
from dressage_llm_agent.template.intents import ParsedIntent
from dressage_llm_agent.template.plans import Grade, grade
from dressage_llm_agent.template.reward_terms import PLACES, SEAT, SITTING, STANDING
from dressage_llm_agent.template.targets import (
    FLIPS,
    SpeedTarget,
    distance_field,
    flipping_field,
    foot_heights,
    has,
    joint_velocities,
    level,
    lowest,
    place_fields,
    speed_target,
    spin_target,
    tips_over,
    turning_field,
)

_TURN = "6.283185307179586"


def move(intent: ParsedIntent, card: EnvironmentCard) -> list[Grade]:
    """Mean velocity, a straight way, and keeping it up."""
    target = speed_target(intent)
    sign = "" if intent.sign > 0 else "-"
    way = {"forward": "forwards", "backward": "backwards", "left": "to the left", "right": "to the right"}[
        intent.direction
    ]
    half = 0.5 * target.speed
    net, path, best = _straightness(card)
    parts = [
        rate_grade("speed", f"{sign}mean_velocity", target, evidence="mean_velocity_m_s", unit="m/s", way=way),
        grade(
            "direction",
            f"{sign}{net} / max({path}, 1e-9)",
            0.2,
            best,
            "net_distance_by_path_length",
            f"keeps going {way}",
            f"net distance {way} by the length of the path: full marks from {best:g}",
            "gait",
            exponent=0.3,
            floor=0.1,
        ),
        grade(
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
    ]
    if intent.gait == "hop" and len(foot_heights(card)) > 1:
        parts += _together(card)
    return [*parts, _posture(card)] if has(card, "pitch") and not ABILITIES[card.id].floor_start else parts


def _straightness(card: EnvironmentCard) -> tuple[str, str, float]:
    """Expressions of a net distance and of the length of its path, and the quotient that earns full marks.

    The path of a crawler wriggles: it is measured between the ends of seconds. The head of a swimmer sways by more than that,
    so that a straight way of 10 m measured 46 m: its path is that of means over some strokes.
    """
    if ABILITIES[card.id].sways:
        return "(along[-1] - along[0])", "distance_of_means", 0.8
    if len(place_fields(card)) > 1:
        return "(x[-1] - x[0])", "distance_by_second", 0.8
    return "(x[-1] - x[0])", "float(np.abs(np.diff(x)).sum())", 0.9


def stand(intent: ParsedIntent, card: EnvironmentCard) -> list[Grade]:
    """Torso and joints at rest, at the start position."""
    names = joint_velocities(card)
    squares = " + ".join(f"np.square(trajectory.{name})" for name in names)
    places = place_fields(card)
    # A walker's joints move to keep it standing; an arm's need not move.
    worst, best = (5.0, 1.0) if places else (1.0, 0.2)
    parts = []
    if places:
        rates = [f"trajectory.{axis}_velocity" for axis in ("x", "y", "z") if has(card, f"{axis}_velocity")]
        squared = " + ".join(f"np.square({rate})" for rate in rates)
        about = "mean speed of the torso: full marks up to 0.15 m/s, none from 0.5 m/s"
        measure = f"np.sqrt({squared}).mean()"
        parts.append(grade("still", measure, 0.5, 0.15, "mean_speed_m_s", "torso at rest", about, "stability"))
    parts.append(
        grade(
            "quiet",
            f"np.sqrt(({squares}) / {len(names)}.0).mean()",
            worst,
            best,
            "mean_joint_rate_rad_s",
            "joints at rest",
            f"mean joint rate: full marks up to {best:g} rad/s, none from {worst:g} rad/s",
            "stability",
            exponent=0.5 if places else 1.0,
            floor=0.1 if places else 0.0,
        )
    )
    if places:
        parts.append(_stays(places))
    return [*parts, _posture(card)] if has(card, "pitch") else parts


def jump(intent: ParsedIntent, card: EnvironmentCard) -> list[Grade]:
    """Clearance of all feet again and again, in place."""
    clearance = lowest("trajectory", foot_heights(card))
    low, high = ABILITIES[card.id].jump
    parts = [
        grade(
            "height",
            f"np.mean([float(np.max(second)) for second in seconds_of({clearance})])",
            low,
            high,
            "mean_highest_clearance_by_second_m",
            "jumps high, again and again",
            f"highest clearance of the feet in each second, averaged: full marks from {high:g} m, none below {low:g} m",
            "dynamics",
        ),
        grade(
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
    # Without an end of the episode at a fall, a robot on its back with its feet up must not count as jumping.
    return [*parts, _posture(card, floor=0.0)] if tips_over(card) else parts


def flip(intent: ParsedIntent, card: EnvironmentCard) -> list[Grade]:
    """Whole turns in the requested direction, upside down in the air and not on the back."""
    sign, way = ("", "backwards") if intent.direction == "backward" else ("-", "forwards")
    rate = FLIPS[1] if "fast" in intent.qualities else FLIPS[0]
    inverted = f"({level('trajectory', card)} < -0.5)"
    angle = f"trajectory.{flipping_field(card)}"
    return [
        grade(
            "turns",
            f"np.floor({sign}({angle}[-1] - {angle}[0]) / {_TURN} + 0.1) / seconds",
            0.0,
            rate,
            "whole_turns_per_second",
            f"turns over {way}, again and again",
            f"whole turns {way} a second: full marks from {rate:g}",
            "dynamics",
        ),
        grade(
            "aloft",
            f"(1.0 * {inverted} * (trajectory.z_position > 0.35)).sum() / max(float((1.0 * {inverted}).sum()), 1.0)",
            0.0,
            0.5,
            "share_of_upside_down_time_in_the_air",
            "turns over in the air",
            "share of the time upside down with the torso above 0.35 m: full marks from 0.5",
            "posture",
            exponent=0.5,
            floor=0.1,
        ),
    ]


def spin(intent: ParsedIntent, card: EnvironmentCard) -> list[Grade]:
    """The mean rate of turning about the vertical, kept up and in place."""
    angle = f"trajectory.{turning_field(card)}"
    total = f"({angle}[-1] - {angle}[0]) / long_enough"
    signs = {"left": "", "right": "-"}
    measure = f"{signs[intent.direction]}{total}" if intent.direction else f"abs({total})"
    way = {"left": "to the left", "right": "to the right"}.get(intent.direction, "either way")
    parts = [rate_grade("turning", measure, spin_target(intent), evidence="mean_rate_rad_s", unit="rad/s", way=way)]
    if places := place_fields(card):
        parts.append(_stays(places))
    return parts


def reach(intent: ParsedIntent, card: EnvironmentCard) -> list[Grade]:
    """At the target by the end of the episode, and soon with the quality `fast`."""
    distance = f"trajectory.{distance_field(card)}"
    # The distance of a hand that touches an object is the object's radius.
    near, far = (0.02, 0.06) if has(card, "distance_to_target") else (0.12, 0.2)
    parts = [
        grade(
            "distance",
            f"{distance}[len({distance}) // 2 :].mean()",
            far,
            near,
            "mean_distance_in_the_second_half_m",
            "is at the target",
            f"mean distance in the second half of the episode: full marks up to {near:g} m, none from {far:g} m",
            "dynamics",
        )
    ]
    if "fast" in intent.qualities:
        parts.append(
            grade(
                "soon",
                f"np.mean(1.0 * ({distance} > {2 * near:g})) * seconds",
                0.8,
                0.4,
                "seconds_away_from_the_target",
                "gets there quickly",
                f"seconds spent more than {2 * near:g} m away: full marks up to 0.4, none from 0.8",
                "dynamics",
                exponent=0.5,
                floor=0.1,
            )
        )
    return parts


def push(intent: ParsedIntent, card: EnvironmentCard) -> list[Grade]:
    """The object at the goal by the end of the episode, and soon with the quality `fast`."""
    goal = "trajectory.distance_object_to_goal"
    parts = [
        grade(
            "distance",
            f"{goal}[(4 * len({goal})) // 5 :].mean() / max(float({goal}[0]), 0.05)",
            0.8,
            0.25,
            "share_of_the_way_left",
            "the object is at the goal",
            "share of the first distance that is left in the last fifth of the episode: full marks up to 0.25, none from 0.8",
            "dynamics",
        )
    ]
    if "fast" in intent.qualities:
        about = "seconds with more than half of the way left: full marks up to 1.5, none from 4"
        measure = f"np.mean(1.0 * ({goal} > 0.5 * {goal}[0])) * seconds"
        parts.append(_soon(measure, 4.0, 1.5, "seconds_to_halfway", "gets there quickly", about))
    return parts


def rise(intent: ParsedIntent, card: EnvironmentCard) -> list[Grade]:
    """The head at standing height and the torso upright in the second half of the episode."""
    height = card.scales["standing_head_height"]
    head = f"(trajectory.head_height / {height:.3f})"
    parts = [
        grade(
            "height",
            f"{head}[len({head}) // 2 :].mean()",
            SITTING,
            STANDING,
            "mean_head_height_by_standing",
            "stands",
            f"mean height of the head in the second half, by that of standing ({height:.2f} m): full marks from 0.9, none "
            "below 0.4",
            "posture",
        ),
        grade(
            "posture",
            "trajectory.upright[len(trajectory.upright) // 2 :].mean()",
            0.0,
            0.8,
            "mean_cosine_of_tilt",
            "upright",
            "mean cosine of the torso's tilt in the second half: full marks from 0.8, none below 0",
            "posture",
            exponent=0.5,
            floor=0.1,
        ),
    ]
    if "fast" in intent.qualities:
        about = "seconds with the head below 0.7 of standing: full marks up to 3, none from 8"
        measure = f"np.mean(1.0 * ({head} < 0.7)) * seconds"
        parts.append(_soon(measure, 8.0, 3.0, "seconds_until_up", "gets up quickly", about))
    return parts


def sit(intent: ParsedIntent, card: EnvironmentCard) -> list[Grade]:
    """The torso upright and the pelvis on the floor in the second half of the episode."""
    low, high = SEAT
    pelvis = "trajectory.xpos_pelvis[..., 2]"
    return [
        grade(
            "posture",
            "trajectory.upright[len(trajectory.upright) // 2 :].mean()",
            0.3,
            0.9,
            "mean_cosine_of_tilt",
            "upright",
            "mean cosine of the torso's tilt in the second half: full marks from 0.9, none below 0.3",
            "posture",
        ),
        grade(
            "seat",
            f"{pelvis}[len({pelvis}) // 2 :].mean()",
            high,
            low,
            "mean_pelvis_height_m",
            "sits on the floor",
            f"mean height of the pelvis in the second half: full marks up to {low:g} m, none from {high:g} m",
            "posture",
        ),
    ]


def balance(intent: ParsedIntent, card: EnvironmentCard) -> list[Grade]:
    """The poles upright, the cart at its place where one is named."""
    places = intent.qualities & {"centred", *PLACES}
    target = next((PLACES[name] for name in places if name in PLACES), 0.0)
    both = has(card, "pole2_angle")
    best = 0.02 if "upright" in intent.qualities else 0.05
    worst = 0.15
    tilt = "np.abs(trajectory.pole_angle)"
    if both:
        tilt, best, worst = f"({tilt} + np.abs(trajectory.pole2_angle))", 2 * best, 2 * worst
    poles = "poles, added up" if both else "pole"
    parts = [
        grade(
            "upright",
            f"{tilt}.mean()",
            worst,
            best,
            "mean_pole_angle_rad",
            "poles upright" if both else "pole upright",
            f"mean angle of the {poles}: full marks up to {best:g} rad, none from {worst:g} rad",
            "posture",
            exponent=0.5,
            floor=0.1,
        )
    ]
    if places:
        parts.append(
            grade(
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
    return parts


def rate_grade(name: str, measure: str, target: SpeedTarget, *, evidence: str, unit: str, way: str) -> Grade:
    """A mean rate with a minimum or an exact target."""
    rate = target.speed
    word = "velocity" if unit == "m/s" else "rate of turning"
    title = f"{rate:g} {unit} {way}"
    if target.hold:
        closeness = f"1.0 - abs({measure} - {rate:g}) / {rate:g}"
        about = f"mean {word} {way}: full marks within 15 % of {rate:g} {unit}, none 50 % off"
        return grade(name, closeness, 0.5, 0.85, f"closeness_to_target_{name}", title, about, "dynamics")
    about = f"mean {word} {way}: full marks from {rate:g} {unit}, none below {0.1 * rate:g} {unit}"
    return grade(name, measure, 0.1 * rate, rate, evidence, title, about, "dynamics")


def _soon(measure: str, low: float, high: float, evidence: str, title: str, about: str) -> Grade:
    return grade("soon", measure, low, high, evidence, title, about, "dynamics", exponent=0.5, floor=0.1)


def _stays(places: tuple[str, ...]) -> Grade:
    if len(places) == 1:
        measure = "np.abs(x - x[0]).max()"
    else:
        squares = " + ".join(f"np.square(trajectory.{name} - trajectory.{name}[0])" for name in places)
        measure = f"np.sqrt({squares}).max()"
    return place_grade(measure)


def place_grade(measure: str) -> Grade:
    """The largest distance from the start, m."""
    return grade(
        "place",
        measure,
        2.0,
        0.5,
        "largest_distance_from_start_m",
        "stays where it is",
        "largest distance from the start: full marks up to 0.5 m, none from 2 m",
        "stability",
        exponent=0.5,
        floor=0.1,
    )


def _together(card: EnvironmentCard) -> list[Grade]:
    first, second = (f"trajectory.{name.replace('height_', 'touching_')}" for name in foot_heights(card)[:2])
    return [
        grade(
            "flight",
            f"np.mean((1.0 - {first}) * (1.0 - {second}))",
            0.05,
            0.25,
            "share_of_time_in_the_air",
            "leaves the ground",
            "share of the time with no foot on the floor: full marks from 0.25, none below 0.05",
            "gait",
            exponent=0.5,
            floor=0.1,
        ),
        grade(
            "together",
            f"np.mean(1.0 - np.abs({first} - {second}))",
            0.5,
            0.8,
            "share_of_time_with_both_feet_alike",
            "both feet together",
            "share of the time with both feet on the floor or both off it: full marks from 0.8, none below 0.5",
            "gait",
            exponent=0.5,
            floor=0.1,
        ),
    ]


def _posture(card: EnvironmentCard, *, floor: float = 0.1) -> Grade:
    about = "share of the time within 60 degrees of level: full marks from 0.95, none below 0.5"
    measure = f"np.mean(1.0 * ({level('trajectory', card)} > 0.5))"
    evidence = "share_of_time_right_way_up"
    return grade("posture", measure, 0.5, 0.95, evidence, "right way up", about, "posture", exponent=0.5, floor=floor)
