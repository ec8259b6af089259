"""The behaviours that the template author supports in each environment, as data.

Left and right are along the y axis for robots that move in a horizontal plane. For those in the vertical x-z plane they mean
backward and forward.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dressage.envs.packs.batched.words import TASKS
from dressage.envs.packs.registry import PACK_ENVIRONMENT_IDS

HALF_CHEETAH = "HalfCheetah-v5"
HOPPER = "Hopper-v5"
INVERTED_PENDULUM = "InvertedPendulum-v5"
WALKER = "Walker2d-v5"
SWIMMER = "Swimmer-v5"
DOUBLE_PENDULUM = "InvertedDoublePendulum-v5"
REACHER = "Reacher-v5"

ANT = "Ant-v5"
HUMANOID = "Humanoid-v5"
HUMANOID_STANDUP = "HumanoidStandup-v5"
PUSHER = "Pusher-v5"
CART_POLE = "CartPole-v1"

VELOCITY_TASKS: tuple[str, ...]
"""Tasks of environment packs in which a legged robot follows a velocity."""
CART_POLE_TASKS: tuple[str, ...]
"""Tasks of environment packs with a pole on a cart, whose episodes continue when the pole falls."""
VELOCITY_TASKS, CART_POLE_TASKS = (
    tuple(name for name in PACK_ENVIRONMENT_IDS if name in TASKS and TASKS[name].category == category)
    for category in ("velocity", "cartpole")
)

_SPINS = ("spin", "spin left", "spin right")
_FOUR_WAYS = ("forward", "backward", "left", "right")


def _moves(*gaits: str, ways: tuple[str, ...] = ("forward", "backward")) -> tuple[str, ...]:
    return tuple(f"{gait} {way}" for gait in gaits for way in ways)


@dataclass(frozen=True)
class Abilities:
    """The behaviours that one environment supports.

    :param behaviours: `ParsedIntent.behaviour` of each.
    :param nouns: words for the robot or its parts; the nouns of another environment make an intent unknown.
    :param max_speed: highest accepted target speed in m/s; 0 where no speed can be requested.
    :param planar: it moves in the vertical x-z plane.
    :param falls: it falls unless it balances, so that balancing means standing.
    :param erect: it has a torso with a height and a tilt, so that `upright` and `low` apply.
    :param crouches: its card has a standing height, so that `low` applies.
    :param turns: its heading is independent of its direction of motion, so that not turning applies.
    :param effort: its actions differ in strength, so that saving energy applies.
    """

    behaviours: tuple[str, ...]
    nouns: frozenset[str]
    max_speed: float = 0.0
    planar: bool = True
    erect: bool = True
    crouches: bool = True
    turns: bool = False
    effort: bool = True
    falls: bool = False


ABILITIES: Mapping[str, Abilities] = {
    HALF_CHEETAH: Abilities(
        (
            *_moves("run", "walk", "move", "hop", "crawl"),
            *("stand", "jump", "flip forward", "flip backward"),
        ),
        frozenset({"cheetah", "half", "halfcheetah", "runner"}),
        max_speed=12.0,
    ),
    HOPPER: Abilities(
        (*_moves("hop", "walk", "run", "move"), "stand", "jump"),
        frozenset({"hopper"}),
        max_speed=5.0,
        falls=True,
    ),
    INVERTED_PENDULUM: Abilities(
        ("balance",), frozenset({"pole", "pendulum", "cart", "rail", "inverted"}), planar=False, erect=False
    ),
    WALKER: Abilities(
        (*_moves("walk", "run", "hop", "move"), "stand", "jump"),
        frozenset({"walker"}),
        max_speed=5.0,
        falls=True,
    ),
    SWIMMER: Abilities(
        (*_moves("swim", "move", ways=_FOUR_WAYS), "stand", *_SPINS),
        frozenset({"swimmer", "chain"}),
        max_speed=0.5,
        planar=False,
        erect=False,
    ),
    DOUBLE_PENDULUM: Abilities(
        ("balance",),
        frozenset({"pole", "pendulum", "cart", "rail", "inverted", "double", "both", "two"}),
        planar=False,
        erect=False,
    ),
    REACHER: Abilities(
        ("reach", "stand"),
        frozenset({"arm", "finger", "fingertip", "reacher"}),
        planar=False,
        erect=False,
    ),
    ANT: Abilities(
        (
            *_moves("walk", "run", "move", "crawl", ways=_FOUR_WAYS),
            "stand",
            "jump",
            "flip forward",
            "flip backward",
            *_SPINS,
        ),
        frozenset({"ant"}),
        max_speed=6.0,
        planar=False,
        turns=True,
    ),
    HUMANOID: Abilities(
        (*_moves("walk", "run", "move", ways=_FOUR_WAYS), "stand", "jump", *_SPINS),
        frozenset({"humanoid"}),
        max_speed=5.0,
        planar=False,
        turns=True,
        falls=True,
    ),
    HUMANOID_STANDUP: Abilities(
        ("rise", "sit", "crawl forward", "crawl backward"),
        frozenset({"humanoid"}),
        max_speed=1.0,
        planar=False,
    ),
    PUSHER: Abilities(
        ("push", "reach", "stand"),
        frozenset({"arm", "hand", "pusher"}),
        planar=False,
        erect=False,
    ),
    CART_POLE: Abilities(
        ("balance",),
        frozenset({"pole", "cart", "track", "cartpole"}),
        planar=False,
        erect=False,
        effort=False,
    ),
    **dict.fromkeys(
        VELOCITY_TASKS,
        Abilities(
            (*_moves("walk", "run", "move", ways=_FOUR_WAYS), "stand", *_SPINS),
            frozenset({"quadruped", "dog", "unitree"}),
            max_speed=2.0,
            planar=False,
            crouches=False,
            turns=True,
            falls=True,
        ),
    ),
    **dict.fromkeys(
        CART_POLE_TASKS,
        Abilities(("balance",), frozenset({"pole", "cart", "rail", "cartpole"}), planar=False, erect=False),
    ),
}
"""By environment, in the order of listings."""

KNOWN_BEHAVIOURS: Mapping[str, tuple[str, ...]] = {name: able.behaviours for name, able in ABILITIES.items()}
