"""The cards of the packs' environments. Their numbers are read off the live environment, in a process of the pack."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from dressage.envs.cards import ActionComponent, EnvironmentCard, ObservationComponent, load_card
from dressage.envs.generate import write_check_episodes
from dressage.envs.packs import simulators
from dressage.envs.packs.batched.words import task_words
from dressage.envs.packs.registry import PACKS
from dressage.envs.packs.words import Words
from dressage.envs.vector import Adapter, bound_fields

_SECONDS = 600.0
_EPISODES = 5
METHODS = ("parameters", "code")


def _metaworld(title: str, task: str, target: float, intent: str) -> Words:
    def scene(prefix: str, when: str) -> list[tuple[str, str, str]]:
        hand = [(f"{prefix}hand_{axis}", "m", f"position of the gripper along {axis}{when}") for axis in "xyz"]
        opening = [(f"{prefix}gripper", "1", f"opening of the gripper{when}, 0 = closed, 1 = open")]
        things = []
        for number, thing in ((1, "the first object"), (2, "the second object, 0 if there is none")):
            things += [(f"{prefix}object{number}_{axis}", "m", f"{thing}: {axis}{when}") for axis in "xyz"]
            things += [
                (f"{prefix}object{number}_q{part}", "1", f"{thing}: quaternion {part}{when}") for part in range(4)
            ]
        return [*hand, *opening, *things]

    goal = [(f"goal_{axis}", "m", f"{axis} of the goal") for axis in "xyz"]
    return Words(
        title=title,
        description=(
            f"A Sawyer robot arm with a parallel gripper above a table. {task} The gripper moves by small displacements; x "
            "is to the right, y away from the robot, z up. Objects and goals are placed anew for each episode."
        ),
        observation=[*scene("", ""), *scene("previous_", ", one step earlier"), *goal],
        action=[
            *((f"move_{axis}", "1", f"displacement of the gripper along {axis}, 1 = 1 cm at most") for axis in "xyz"),
            ("grip", "1", "force of the gripper: 1 = close, -1 = open"),
        ],
        stock_reward="Meta-World's shaped reward for progress on the task, at most 10 a step",
        termination="never before the time limit.",
        intents=(intent,),
        time_step=0.0125,
        target=target,
    )


_POINT = [
    ("achieved_x", "m", "x of the ball"),
    ("achieved_y", "m", "y of the ball"),
    ("goal_x", "m", "x of the goal"),
    ("goal_y", "m", "y of the goal"),
    ("x_position", "m", "x of the ball"),
    ("y_position", "m", "y of the ball"),
    ("x_velocity", "m/s", "velocity of the ball along x"),
    ("y_velocity", "m/s", "velocity of the ball along y"),
]


def _maze(title: str, start: str, target: float) -> Words:
    return Words(
        title=title,
        description=(
            "A ball in a maze is pushed by forces and reaches a goal. Each cell of the maze is 1 m × 1 m; the origin is the "
            "centre of the map, x points to the right and y up, so the cell in row i and column j (both from 0) has its "
            f"centre at x = j - 5.5, y = 4 - i. {start} "
            "The map, # = wall:\n{map}"
        ),
        observation=_POINT,
        action=[("force_x", "1", "force along x"), ("force_y", "1", "force along y")],
        stock_reward="1 for each step in which the ball is within 0.45 m of the goal, else 0; the episode continues there",
        termination="never before the time limit.",
        intents=("reach the goal of the maze",),
        time_step=0.01,
        target=target,
    )


_DENSITIES = [
    *((f"phase_{phase}", "1", f"1 if green phase {phase} is active") for phase in range(2)),
    ("min_green", "1", "1 once the active phase has lasted its minimum of 5 s, so that a change takes effect"),
    *((f"density_{lane}", "1", f"share of incoming lane {lane} that vehicles cover, 0 to 1") for lane in range(4)),
    *((f"queue_{lane}", "1", f"share of incoming lane {lane} that halted vehicles cover, 0 to 1") for lane in range(4)),
]

WORDS: dict[str, Words] = {
    # Straight to the goal, through no wall, earns 330 in the first maze and 240 in the second one, because some goals are near.
    "PointMaze_Large-v3": _maze(
        "ball in a large maze", "Start and goal are drawn from all free cells in each episode.", 550.0
    ),
    "PointMaze_Large_Diverse_G-v3": _maze(
        "ball in a large maze, goals in some cells",
        "The episode starts in the free cell at the top left; the goal is drawn from seven cells.",
        500.0,
    ),
    # An open gripper that waits in front of the button earns 600; a pressed button pays 8 for each step.
    "metaworld-button-press-v3": _metaworld(
        "arm that presses a button", "It presses a button on a box, along y.", 3500.0, "press the button"
    ),
    "metaworld-door-open-v3": _metaworld(
        "arm that opens a door", "It opens a door by its handle.", 4000.0, "open the door"
    ),
    "metaworld-drawer-open-v3": _metaworld(
        "arm that opens a drawer", "It pulls a drawer open by its handle.", 3800.0, "open the drawer"
    ),
    "metaworld-pick-place-v3": _metaworld(
        "arm that picks and places",
        "It lifts a puck and holds it at the goal.",
        3800.0,
        "pick up the puck and hold it at the goal",
    ),
    "Glucose-adolescent2-v0": Words(
        title="insulin pump of a simulated patient",
        description=(
            "A simulated adolescent with type 1 diabetes (the UVA/Padova model of simglucose, patient adolescent#002) eats "
            "meals at random times. A pump gives insulin; a sensor measures glucose every 3 minutes for one day. Too little "
            "glucose is more dangerous than too much."
        ),
        observation=[("glucose", "mg/dL", "measured glucose, with noise and delay; 70 to 180 is healthy")],
        action=[("insulin", "U/min", "rate of insulin; some hundredths are usual")],
        stock_reward="decrease of the blood glucose risk index over the last hour, summed",
        termination="the step in which blood glucose is below 10 or above 600 mg/dL.",
        intents=("keep blood glucose between 70 and 180 mg/dL",),
        time_step=180.0,
        target=-10.0,
    ),
    "Traffic-single-intersection-v0": Words(
        title="traffic light of an intersection",
        description=(
            "A traffic light of one intersection with two phases. Every 5 seconds it keeps or changes the green phase; a "
            "change costs 2 seconds of yellow. Vehicles arrive at random."
        ),
        observation=_DENSITIES,
        action=[("phase", "1", "number of the green phase from now on: 0 or 1")],
        stock_reward="decrease of the waiting time of all vehicles, in units of 100 s",
        termination="never before the time limit.",
        intents=("keep the waiting times of vehicles short",),
        time_step=5.0,
        target=-2.0,
    ),
}


def describe(channel: Any) -> None:
    """Sandbox target in a process of the pack: build cards, or write check episodes into a folder, as asked for."""
    while env_id := str((request := channel.recv(timeout=_SECONDS))["environment"]):
        if request["folder"]:
            write_check_episodes(load_card(env_id), Path(request["folder"]))
            channel.send({"card": {}})
        else:
            channel.send({"card": build_card(env_id).to_dict()})


def build_card(env_id: str) -> EnvironmentCard:
    """Return the card of a live environment, with its measured scales. In a process of the pack."""
    env = simulators.make(env_id)
    (pack,) = (pack for pack in PACKS.values() if env_id in pack.environments)
    words = task_words(env_id, env.unwrapped.facts) if pack.batched else WORDS[env_id]
    adapter = Adapter(env, env_id)
    steps = _time_limit(env)
    discrete = adapter.num_actions > 0
    if len(words.observation) != adapter.size or len(words.action) != (1 if discrete else len(adapter.low)):
        raise SystemExit(f"{env_id}: {adapter.size} observations, {len(adapter.low)} action components")
    bounds = [(0.0, adapter.num_actions - 1.0)] if discrete else list(zip(adapter.low, adapter.high, strict=True))
    card = EnvironmentCard(
        id=env_id,
        title=words.title,
        description=words.description.replace("{map}", _map(env)),
        fields=(),
        observation_components=tuple(ObservationComponent(*entry) for entry in words.observation),
        action=tuple(
            ActionComponent(name, float(low), float(high), unit, meaning)
            for (name, unit, meaning), (low, high) in zip(words.action, bounds, strict=True)
        ),
        action_kind="discrete" if discrete else "box",
        num_actions=adapter.num_actions,
        observation_size=adapter.size,
        time_step=words.time_step,
        max_episode_steps=steps,
        can_terminate="never" not in words.termination,
        termination=words.termination,
        stock_reward=words.stock_reward,
        example_intents=words.intents,
        options={"max_episode_steps": steps},
        methods=("reward", *METHODS) if pack.batched else METHODS,
        target=words.target,
        pack=pack.name,
    )
    simulated = tuple(env.unwrapped.facts.fields) if pack.batched else ()
    card = replace(card, fields=(*(entry.field for entry in bound_fields(card)), *simulated))
    return replace(card, scales=_scales(env, adapter))


def _time_limit(env: Any) -> int:
    while not hasattr(env, "_max_episode_steps"):
        env = env.env
    return int(env._max_episode_steps)


def _map(env: Any) -> str:
    maze = getattr(env.unwrapped, "maze", None)
    return (
        "" if maze is None else "\n".join("".join("#" if cell == 1 else "." for cell in row) for row in maze.maze_map)
    )


def _scales(env: Any, adapter: Adapter) -> dict[str, float]:
    """Return return and length of episodes with uniformly random actions."""
    rng, returns, lengths = np.random.default_rng(0), [], []
    for seed in range(_EPISODES):
        env.reset(seed=seed)
        total, steps, ended = 0.0, 0, False
        while not ended:
            choice = (
                rng.integers(adapter.num_actions) if adapter.num_actions else rng.uniform(adapter.low, adapter.high)
            )
            _, reward, terminated, truncated, _ = env.step(adapter.action(np.asarray(choice)))
            total, steps, ended = total + float(reward), steps + 1, terminated or truncated
        returns.append(total)
        lengths.append(steps)
    return {
        "random_return": round(float(np.mean(returns)), 4),
        "random_episode_steps": round(float(np.mean(lengths)), 4),
    }
