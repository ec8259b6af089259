"""The behaviours that the template author supports in each environment: the table ``template`` of its description.

Left and right are along the y axis for robots that move in a horizontal plane. For those in the vertical x-z plane they mean
backward and forward.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dressage.envs.catalogue import catalogue

_WAYS = ("forward", "backward")
_TUPLES = ("effort", "spin", "jump")

Levels = tuple[float, float, float]
"""Target speeds: plain, with the quality ``fast`` and with ``slow``."""


@dataclass(frozen=True)
class Abilities:
    """The behaviours that one environment supports.

    :param behaviours: `ParsedIntent.behaviour` of each. In a description a gait of ``speeds`` stands for all its ``ways``.
    :param nouns: words for the robot or its parts; the nouns of another environment make an intent unknown.
    :param max_speed: highest accepted target speed in m/s; 0 where no speed can be requested.
    :param planar: it moves in the vertical x-z plane.
    :param falls: it falls unless it balances, so that balancing means standing.
    :param erect: it has a torso with a height and a tilt, so that `upright` and `low` apply.
    :param crouches: its card has a standing height, so that `low` applies.
    :param turns: its heading is independent of its direction of motion, so that not turning applies.
    :param floor_start: it starts on the floor, so that no posture is expected of it while it moves.
    :param sways: its front swings from side to side as it moves.
    :param steady: height and posture of its torso earn in every step.
    :param bounded_speed: no more is earned for a speed well beyond the target.
    :param effort: weights of the squared action: plain (about the stock weight, if any), and with the quality `energy_saving`;
        None where actions do not differ in strength.
    :param alive: bonus of each step before an episode ends early.
    :param speeds: target speeds in m/s by gait.
    :param spin: target rates of turning about the vertical, in rad/s.
    :param jump: clearance of all feet, in m, that scores 0 and 1.
    :param family: of environments of packs, whose rewards and judges have terms of their own: ``velocity``, legged robots that
        follow a velocity, or ``cart_pole``, whose episodes continue when the pole falls; else empty.
    """

    behaviours: tuple[str, ...]
    nouns: frozenset[str]
    max_speed: float = 0.0
    planar: bool = True
    erect: bool = True
    crouches: bool = True
    turns: bool = False
    falls: bool = False
    floor_start: bool = False
    sways: bool = False
    steady: bool = False
    bounded_speed: bool = False
    effort: tuple[float, float] | None = None
    alive: float = 1.0
    speeds: Mapping[str, Levels] = field(default_factory=dict)
    spin: Levels = (0.0, 0.0, 0.0)
    jump: tuple[float, float] = (0.02, 0.25)
    family: str = ""


def _abilities(table: Mapping[str, Any]) -> Abilities:
    values = dict(table)
    ways: Sequence[str] = values.pop("ways", _WAYS)
    speeds = {gait: tuple(levels) for gait, levels in values.pop("speeds", {}).items()}
    listed = ((name, ways if name in speeds else ("",)) for name in values.pop("behaviours"))
    behaviours = tuple(f"{name} {way}".strip() for name, own in listed for way in own)
    values |= {name: tuple(values[name]) for name in _TUPLES if name in values}
    return Abilities(behaviours=behaviours, nouns=frozenset(values.pop("nouns")), speeds=speeds, **values)


ABILITIES: Mapping[str, Abilities] = {
    name: _abilities(table) for name, entry in catalogue().items() if (table := entry.table("template"))
}
"""By environment, in the order of listings."""
