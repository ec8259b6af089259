"""Words of the batched simulators' tasks. Names, sizes and times are read off the live environment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dressage.envs.packs.batched.protocol import Facts
from dressage.envs.packs.words import Words


@dataclass(frozen=True)
class Task:
    """A task that runs here.

    :param category: see `INTENTS`.
    :param bound: of each component of the action, which these simulators do not bound themselves.
    """

    title: str
    description: str
    category: str
    bound: float
    action_unit: str = "1"


INTENTS: Mapping[str, tuple[str, ...]] = {
    "velocity": ("walk forward", "walk backward", "turn on the spot", "stand still"),
    "cartpole": ("keep the pole upright", "keep the pole upright in the middle of the rail"),
    "swingup": ("swing the pole up and hold it upright",),
}
"""Intents by category of task."""

TASKS: Mapping[str, Task] = {
    "Mjlab-Velocity-Flat-Unitree-Go1": Task(
        "quadruped Unitree Go1 on flat ground",
        "mjlab's Unitree Go1 on a plane. The policy follows a commanded velocity that changes during the episode; positions "
        "and forces of the joints are randomised a little, and the robot is pushed at times. The action moves the targets "
        "of the joints' position control around the standing pose.",
        "velocity",
        5.0,
    ),
    "Mjlab-Cartpole-Balance": Task(
        "cart-pole of mjlab, balance",
        "A pole on a cart that a motor moves along a rail. It begins upright.",
        "cartpole",
        1.0,
    ),
    "Mjlab-Cartpole-Swingup": Task(
        "cart-pole of mjlab, swing-up",
        "A pole on a cart that a motor moves along a rail. It begins hanging.",
        "swingup",
        1.0,
    ),
    "Isaac-Cartpole-Direct": Task(
        "cart-pole of Isaac Lab",
        "Isaac Lab's cart-pole on the Newton simulator: a pole on a cart that a force moves along a rail. It begins near "
        "upright.",
        "cartpole",
        1.0,
    ),
}


def task_words(env_id: str, facts: Facts) -> Words:
    """Return the words of a task, with what the live environment reports."""
    task = TASKS[env_id]
    observation = []
    for name, size in facts.observation:
        meaning = name.replace("_", " ")
        parts = [(f"{name}_{index}", f"{meaning}, number {index}") for index in range(size)]
        observation += [(part, "mixed", text) for part, text in ([(name, meaning)] if size == 1 else parts)]
    ends = ", ".join(facts.terminations)
    return Words(
        title=task.title,
        description=task.description,
        observation=observation,
        action=[(name, task.action_unit, f"{name.replace('_', ' ')}, scaled by the task") for name in facts.action],
        stock_reward=f"the task's own reward, summed over a step: {', '.join(facts.rewards)}",
        termination=f"by the task's conditions: {ends}." if ends else "never before the time limit.",
        intents=INTENTS[task.category],
        time_step=facts.time_step,
        target=None,
    )
