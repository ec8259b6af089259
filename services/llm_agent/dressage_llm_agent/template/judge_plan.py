"""Plans a judge: the graded criteria of a parsed intent.

Essential criteria (moving, staying up, leaving the ground) have floor 0 and exponent 1: a policy without them scores 0. Other
criteria can only lower the score. `judge_grades` has the criteria of single behaviours.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from dressage.envs.cards import EnvironmentCard

from dressage_llm_agent.template import cart_pole_tasks, velocity_tasks
from dressage_llm_agent.template import judge_grades as grades
from dressage_llm_agent.template.abilities import ABILITIES
from dressage_llm_agent.template.intents import Kind, ParsedIntent
from dressage_llm_agent.template.plans import Grade, JudgePlan, grade
from dressage_llm_agent.template.targets import has, level, low_height, standing_height

_ALL_CONTROLS = ("random", "untrained", "motionless", "time_reversed")
_FORWARDS_IN_TIME = ("random", "untrained", "motionless")

_Builders = Mapping[Kind, Callable[[ParsedIntent, EnvironmentCard], list[Grade]]]
_BUILDERS: _Builders = {
    "move": grades.move,
    "stand": grades.stand,
    "jump": grades.jump,
    "flip": grades.flip,
    "spin": grades.spin,
    "reach": grades.reach,
    "push": grades.push,
    "rise": grades.rise,
    "sit": grades.sit,
    "balance": grades.balance,
}
_FAMILIES: Mapping[str, _Builders] = {
    "": _BUILDERS,
    "velocity": velocity_tasks.GRADES,
    "cart_pole": cart_pole_tasks.GRADES,
}


def plan_judge(intent: ParsedIntent, card: EnvironmentCard) -> JudgePlan:
    """Return the criteria of a judge for an intent."""
    parts = _FAMILIES[ABILITIES[card.id].family][intent.kind](intent, card)
    if card.can_terminate:
        parts.append(_endurance())
    parts += _quality_grades(intent, card)
    controls, reasoning = _null_controls(intent, card)
    return JudgePlan(tuple(parts), controls, reasoning)


def _null_controls(intent: ParsedIntent, card: EnvironmentCard) -> tuple[tuple[str, ...], str]:
    if intent.kind == "move":
        return _ALL_CONTROLS, "none of them moves in the direction asked for at the speed asked for"
    if intent.kind in ("flip", "spin"):
        return _ALL_CONTROLS, "none of them keeps turning the way asked for"
    if intent.kind in ("reach", "push"):
        return _FORWARDS_IN_TIME, "none of them heads for the target; played backwards, an episode may well end at it"
    if intent.kind in ("rise", "sit"):
        return _FORWARDS_IN_TIME, "none of them gets up; played backwards, a fall looks like it"
    if intent.kind != "stand" and (card.can_terminate or intent.kind == "jump"):
        return _FORWARDS_IN_TIME, "none of them does it or stays up; played backwards, the behaviour looks alike"
    if card.can_terminate:
        why = "each falls at once; doing nothing stands for a while, and backwards it looks alike"
        return ("random", "untrained"), why
    return ("random",), "to be still is what is asked for; played backwards, it looks alike"


def _quality_grades(intent: ParsedIntent, card: EnvironmentCard) -> list[Grade]:
    parts = []
    span = max(part.high for part in card.action)
    if "smooth" in intent.qualities:
        about = "mean change of the action in a step, as a share of its bound: full marks up to 0.25, none from 0.9"
        measure = f"np.abs(np.diff(trajectory.action, axis=0)).mean() / {span:g}"
        parts.append(_quality("smooth", measure, 0.9, 0.25, "mean_action_change", "moves smoothly", about, "gait"))
    if "energy_saving" in intent.qualities:
        about = "mean squared action, as a share of its bound's: full marks up to 0.3, none from 0.9"
        measure = f"np.square(trajectory.action).mean() / {span * span:g}"
        title = "spends little energy"
        parts.append(_quality("energy", measure, 0.9, 0.3, "mean_squared_action", title, about, "efficiency"))
    if "upright" in intent.qualities and intent.kind != "balance":
        if has(card, "upright") or has(card, "root_gravity"):
            about = "mean cosine of the tilt: full marks from 0.9, none below 0.5"
            measure, low, high, evidence = f"{level('trajectory', card)}.mean()", 0.5, 0.9, "mean_cosine_of_tilt"
        else:
            about = "mean absolute pitch: full marks up to 0.3 rad, none from 1 rad"
            measure, low, high, evidence = "np.abs(trajectory.pitch).mean()", 1.0, 0.3, "mean_pitch_rad"
        parts.append(_quality("upright", measure, low, high, evidence, "stays upright", about, "posture"))
    if "unturned" in intent.qualities and has(card, "yaw"):
        about = "mean turn away from the first heading: full marks up to 0.3 rad, none from 1.2 rad"
        measure = "np.abs(trajectory.yaw - trajectory.yaw[0]).mean()"
        parts.append(_quality("unturned", measure, 1.2, 0.3, "mean_turn_rad", "keeps its heading", about, "posture"))
    if intent.low:
        low, high = low_height(card), standing_height(card)
        about = f"mean height of the torso: full marks up to {low:.3f} m, none from {high:.3f} m"
        measure = "trajectory.z_position.mean()"
        parts.append(_quality("low", measure, high, low, "mean_height_m", "keeps low", about, "posture"))
    return parts


def _endurance() -> Grade:
    about = "share of the episode before it ends by a fall: full marks if it does not"
    return grade("endurance", "survived", 0.0, 1.0, "share_of_episode_survived", "does not fall", about, "stability")


def _quality(
    name: str, measure: str, low: float, high: float, evidence: str, title: str, description: str, category: str
) -> Grade:
    return grade(name, measure, low, high, evidence, title, description, category, exponent=0.3, floor=0.1)
