"""Target speeds, and the fields of the card that measure behaviours."""

from __future__ import annotations

from dataclasses import dataclass

from dressage.envs.cards import EnvironmentCard

from dressage_llm_agent.template.abilities import (
    ANT,
    HALF_CHEETAH,
    HOPPER,
    HUMANOID,
    HUMANOID_STANDUP,
    SWIMMER,
    VELOCITY_TASKS,
    WALKER,
)
from dressage_llm_agent.template.intents import ParsedIntent


@dataclass(frozen=True)
class SpeedTarget:
    """A minimum speed, or with ``hold`` an exact one, in m/s or rad/s, > 0."""

    speed: float
    hold: bool


_Targets = dict[str, tuple[SpeedTarget, SpeedTarget, SpeedTarget]]


def _reach(plain: float, fast: float, slow: float) -> tuple[SpeedTarget, SpeedTarget, SpeedTarget]:
    return SpeedTarget(plain, hold=False), SpeedTarget(fast, hold=False), SpeedTarget(slow, hold=True)


def _hold(plain: float, fast: float, slow: float) -> tuple[SpeedTarget, SpeedTarget, SpeedTarget]:
    return SpeedTarget(plain, hold=True), SpeedTarget(fast, hold=True), SpeedTarget(slow, hold=True)


# The speeds that velocity tasks command, at most 1 m/s, and somewhat more. Not trained.
_LEGGED: _Targets = {"run": _reach(1.0, 1.5, 0.5), "walk": _hold(0.6, 1.0, 0.3), "move": _reach(0.6, 1.2, 0.3)}
# Reached by PPO within about a million steps: HalfCheetah runs at 4 to 7 m/s, Hopper hops and Walker2d runs at 1 to 3 m/s.
# Slow speeds are exact ones. By gait: plain, fast, slow.
_SPEEDS: dict[str, _Targets] = {
    HALF_CHEETAH: {
        "run": _reach(4.0, 5.0, 1.5),
        "walk": _hold(1.2, 2.0, 0.8),
        "move": _reach(2.0, 5.0, 0.8),
        "hop": _reach(1.0, 2.0, 0.5),
        "crawl": _reach(1.0, 1.8, 0.7),
    },
    HOPPER: {
        "hop": _reach(1.0, 2.0, 0.5),
        "run": _reach(1.0, 2.0, 0.5),
        "move": _reach(1.0, 2.0, 0.5),
        "walk": _hold(0.7, 1.5, 0.4),
    },
    WALKER: {
        "run": _reach(1.5, 2.5, 0.8),
        "walk": _hold(1.0, 1.5, 0.6),
        "move": _reach(1.0, 2.5, 0.6),
        "hop": _reach(0.8, 1.5, 0.4),
    },
    SWIMMER: {
        "swim": _reach(0.15, 0.2, 0.08),
        "move": _reach(0.15, 0.2, 0.08),
    },
    ANT: {
        "run": _reach(1.5, 2.5, 0.8),
        "walk": _hold(1.0, 1.5, 0.5),
        "move": _reach(1.0, 2.0, 0.5),
        "crawl": _reach(0.5, 1.0, 0.3),
    },
    HUMANOID: {
        "run": _reach(1.5, 2.5, 0.8),
        "walk": _hold(0.8, 1.2, 0.5),
        "move": _reach(0.8, 1.5, 0.5),
    },
    HUMANOID_STANDUP: {"crawl": _reach(0.3, 0.6, 0.2)},
    **dict.fromkeys(VELOCITY_TASKS, _LEGGED),
}
# Robots are slower in directions other than forward.
_OTHER_WAY_SHARE = 0.75
# Rates of turning about the vertical, rad/s: plain, fast, slow.
_SPINS = {
    SWIMMER: _reach(0.2, 0.4, 0.15),
    ANT: _reach(0.6, 1.2, 0.4),
    HUMANOID: _reach(0.4, 0.8, 0.25),
    **dict.fromkeys(VELOCITY_TASKS, _reach(0.5, 1.0, 0.3)),
}
# Mean rates of turning over, in turns a second: plain, fast.
FLIPS = (0.1, 0.25)
# Clearance of all feet, in m, that scores 0 and 1. Random actions lift the feet of a cheetah by 0.17 m in each second, those
# of an ant by 0.14 m.
PLAIN_JUMP = (0.02, 0.25)
JUMPS = {HALF_CHEETAH: (0.17, 0.45), ANT: (0.15, 0.4)}
_LOW_SHARE = 0.8


def speed_target(intent: ParsedIntent) -> SpeedTarget:
    """Return the target speed of an intent of kind ``move``, along its direction, in m/s."""
    if intent.speed is not None:
        return SpeedTarget(intent.speed, hold=True)
    target = _by_quality(_SPEEDS[intent.environment][intent.gait], intent)
    if intent.direction != "forward" and not target.hold:
        return SpeedTarget(target.speed * _OTHER_WAY_SHARE, hold=False)
    return target


def spin_target(intent: ParsedIntent) -> SpeedTarget:
    """Return the target rate of turning of an intent of kind ``spin``, in rad/s."""
    return _by_quality(_SPINS[intent.environment], intent)


def _by_quality(targets: tuple[SpeedTarget, SpeedTarget, SpeedTarget], intent: ParsedIntent) -> SpeedTarget:
    plain, fast, slow = targets
    return fast if "fast" in intent.qualities else slow if "slow" in intent.qualities else plain


def has(card: EnvironmentCard, name: str) -> bool:
    """Return whether the card has a field."""
    return any(entry.name == name for entry in card.fields)


def turning_field(card: EnvironmentCard) -> str:
    """Return the name of the field with the angle turned about the vertical, in rad."""
    return "heading" if has(card, "heading") else "turned_yaw"


def turning_rate_field(card: EnvironmentCard) -> str:
    """Return the name of the field with the rate of turning about the vertical, in rad/s."""
    return "heading_velocity" if has(card, "heading") else "yaw_velocity"


def flipping_field(card: EnvironmentCard) -> str:
    """Return the name of the field with the angle of pitch since the start, in rad."""
    return "turned_pitch" if has(card, "turned_pitch") else "pitch"


def distance_field(card: EnvironmentCard) -> str:
    """Return the name of the field with the distance of the hand from its target, in m."""
    return "distance_to_target" if has(card, "distance_to_target") else "distance_to_object"


def level(owner: str, card: EnvironmentCard) -> str:
    """1 where the torso is the right way up, 0 on its side, -1 upside down, as Python."""
    if has(card, "root_gravity"):
        return f"(-{owner}.root_gravity[:, 2])"
    return f"{owner}.upright" if has(card, "upright") else f"np.cos({owner}.pitch)"


def tips_over(card: EnvironmentCard) -> bool:
    """Return whether the torso may end up on its back without the end of the episode."""
    return has(card, "upright") or (has(card, "pitch") and not card.can_terminate)


def long_enough(card: EnvironmentCard) -> float:
    """Return the seconds after which directed motion differs from drift; a shorter recording counts in proportion.

    A robot that moves freely in a plane drifts some way in any direction within a few seconds of random motion.
    """
    return min(30.0, 0.75 * card.max_episode_steps * card.time_step) if len(place_fields(card)) > 1 else 0.0


def place_fields(card: EnvironmentCard) -> tuple[str, ...]:
    """Return the names of the fields with the robot's position on the ground, in m; none for a robot with a fixed base."""
    return tuple(name for name in ("x_position", "y_position") if has(card, name))


def joint_velocities(card: EnvironmentCard) -> tuple[str, ...]:
    """Return the names of the scalar fields that are joint rates in rad/s, without those of the torso."""
    names = (entry.name for entry in card.fields if entry.shape == () and entry.unit == "rad/s")
    return tuple(name for name in names if name not in _TORSO_RATES)


def mean_squared_rate(rate: str, card: EnvironmentCard) -> str:
    """Return the mean over the joints of a squared rate, as Python.

    :param rate: Python with ``{name}`` for the name of a field with joint rates.
    """
    if has(card, "joint_velocities"):
        return f"np.square({rate.format(name='joint_velocities')}).mean(-1)"
    names = joint_velocities(card)
    squares = " + ".join(f"np.square({rate.format(name=name)})" for name in names)
    return f"({squares}) / {len(names)}.0"


_TORSO_RATES = frozenset({"pitch_velocity", "roll_velocity", "heading_velocity", "yaw_velocity"})


def foot_heights(card: EnvironmentCard) -> tuple[str, ...]:
    """Return the names of the fields with the height of a foot above the floor."""
    return tuple(entry.name for entry in card.fields if entry.name.startswith("height_"))


def lowest(owner: str, names: tuple[str, ...]) -> str:
    """Return the minimum of some fields, as Python."""
    expression = f"{owner}.{names[0]}"
    for name in names[1:]:
        expression = f"np.minimum({expression}, {owner}.{name})"
    return expression


def standing_height(card: EnvironmentCard) -> float:
    """Return the height of the torso at rest, in m."""
    return card.scales["standing_height"]


def low_height(card: EnvironmentCard) -> float:
    """Return the height of the torso, in m, below which the body counts as low."""
    return _LOW_SHARE * standing_height(card)
