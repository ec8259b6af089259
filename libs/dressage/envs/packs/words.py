"""The part of the card of a pack's environment that the environment cannot report.

A folder of the catalogue has `WORDS` by id and `make`, or where its simulator is batched a `TASK`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dressage.envs.packs.batched.protocol import Facts


@dataclass(frozen=True)
class Words:
    """The part of a card that no environment can report.

    :param observation: name, unit and meaning of each number of the flat observation, in order.
    :param action: name, unit and meaning of each component of the action.
    :param target: mean return from which it counts as solved; None: searches need a target from the caller.
    """

    title: str
    description: str
    observation: Sequence[tuple[str, str, str]]
    action: Sequence[tuple[str, str, str]]
    stock_reward: str
    termination: str
    intents: tuple[str, ...]
    time_step: float
    target: float | None


@dataclass(frozen=True)
class Task:
    """A task of a batched simulator. Names, sizes and times are read off the live environment.

    :param intents: example intents.
    :param bound: of each component of the action, which these simulators do not bound themselves.
    """

    title: str
    description: str
    intents: tuple[str, ...]
    bound: float
    action_unit: str = "1"


def task_words(task: Task, facts: Facts) -> Words:
    """Return the words of a task, with what the live environment reports."""
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
        intents=task.intents,
        time_step=facts.time_step,
        target=None,
    )
