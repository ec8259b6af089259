"""Target speeds and the card's fields that behaviours of an environment are measured by."""

from __future__ import annotations

from dataclasses import dataclass

from dressage.envs.cards import EnvironmentCard

from dressage_llm_agent.template.intents import ParsedIntent
from dressage_llm_agent.template.vocabulary import HALF_CHEETAH, HOPPER


@dataclass(frozen=True)
class SpeedTarget:
    """A speed to reach (more is fine) or to hold (more is as wrong as less), in m/s, > 0."""

    speed: float
    hold: bool


# Reached by PPO within about a million steps: HalfCheetah runs at 4 to 7 m/s and Hopper hops at 1 to 3 m/s. What is to be
# slow is held, not exceeded. By gait: plain, fast, slow.
_SPEEDS: dict[str, dict[str, tuple[SpeedTarget, SpeedTarget, SpeedTarget]]] = {
    HALF_CHEETAH: {
        "run": (SpeedTarget(4.0, False), SpeedTarget(5.0, False), SpeedTarget(1.5, True)),
        "walk": (SpeedTarget(1.2, True), SpeedTarget(2.0, True), SpeedTarget(0.8, True)),
        "move": (SpeedTarget(2.0, False), SpeedTarget(5.0, False), SpeedTarget(0.8, True)),
    },
    HOPPER: {
        "hop": (SpeedTarget(1.0, False), SpeedTarget(2.0, False), SpeedTarget(0.5, True)),
        "run": (SpeedTarget(1.0, False), SpeedTarget(2.0, False), SpeedTarget(0.5, True)),
        "move": (SpeedTarget(1.0, False), SpeedTarget(2.0, False), SpeedTarget(0.5, True)),
        "walk": (SpeedTarget(0.7, True), SpeedTarget(1.5, True), SpeedTarget(0.4, True)),
    },
}
# Bodies built to go forwards are slower backwards.
_BACKWARD_SHARE = 0.75
_LOW_SHARE = 0.8


def speed_target(intent: ParsedIntent) -> SpeedTarget:
    """The speed that an intent of kind ``move`` asks for, along its direction."""
    if intent.speed is not None:
        return SpeedTarget(intent.speed, hold=True)
    plain, fast, slow = _SPEEDS[intent.environment][intent.gait]
    target = fast if "fast" in intent.qualities else slow if "slow" in intent.qualities else plain
    if intent.direction < 0 and not target.hold:
        return SpeedTarget(target.speed * _BACKWARD_SHARE, hold=False)
    return target


def joint_velocities(card: EnvironmentCard) -> tuple[str, ...]:
    """Names of the scalar fields that are joint rates in rad/s, the torso's own left out."""
    names = (entry.name for entry in card.fields if entry.shape == () and entry.unit == "rad/s")
    return tuple(name for name in names if name != "pitch_velocity")


def foot_heights(card: EnvironmentCard) -> tuple[str, ...]:
    """Names of the fields that hold the height of a foot above the floor."""
    return tuple(entry.name for entry in card.fields if entry.name.startswith("height_"))


def standing_height(card: EnvironmentCard) -> float:
    """Height of the torso at rest, in m."""
    return card.scales["standing_height"]


def low_height(card: EnvironmentCard) -> float:
    """Height of the torso, in m, below which the body counts as low."""
    return _LOW_SHARE * standing_height(card)
