"""Target speeds, and the fields of the card that measure behaviours."""

from __future__ import annotations

from dataclasses import dataclass

from dressage.envs.cards import EnvironmentCard

from dressage_llm_agent.template.abilities import ABILITIES, Levels
from dressage_llm_agent.template.intents import ParsedIntent


@dataclass(frozen=True)
class SpeedTarget:
    """A minimum speed, or with ``hold`` an exact one, in m/s or rad/s, > 0."""

    speed: float
    hold: bool


# A walk is not a run: its target is exact, as slow speeds are. For other gaits more speed is fine.
_EXACT_GAITS = ("walk",)
# Robots are slower in directions other than forward.
_OTHER_WAY_SHARE = 0.75
# Mean rates of turning over, in turns a second: plain, fast.
FLIPS = (0.1, 0.25)
_LOW_SHARE = 0.8


def speed_target(intent: ParsedIntent) -> SpeedTarget:
    """Return the target speed of an intent of kind ``move``, along its direction, in m/s."""
    if intent.speed is not None:
        return SpeedTarget(intent.speed, hold=True)
    levels, exact = ABILITIES[intent.environment].speeds[intent.gait], intent.gait in _EXACT_GAITS
    target = _by_quality(levels, intent, exact=exact)
    if intent.direction != "forward" and not target.hold:
        return SpeedTarget(target.speed * _OTHER_WAY_SHARE, hold=False)
    return target


def spin_target(intent: ParsedIntent) -> SpeedTarget:
    """Return the target rate of turning of an intent of kind ``spin``, in rad/s."""
    return _by_quality(ABILITIES[intent.environment].spin, intent, exact=False)


def _by_quality(levels: Levels, intent: ParsedIntent, *, exact: bool) -> SpeedTarget:
    plain, fast, slow = levels
    if "fast" in intent.qualities:
        return SpeedTarget(fast, hold=exact)
    return SpeedTarget(slow, hold=True) if "slow" in intent.qualities else SpeedTarget(plain, hold=exact)


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
