"""Hyperparameters in a revision: those that the prompt offers, and the JSON of the reply."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from dressage.api.internal.v1 import agent_service_pb2 as agent_pb
from dressage.training import sac
from dressage.training.hyperparameters import (
    HIDDEN_SIZE,
    MAX_HIDDEN_LAYERS,
    RECOMMENDED_HIDDEN_LAYERS,
    RULES,
    Hyperparameters,
)
from dressage.training.preset import load_preset

from dressage_llm_agent.history import HyperparameterValue
from dressage_llm_agent.roles.replies import blocks

SIZES, STEPS = "hidden_sizes", "steps_per_member"
_Bounds = tuple[float, float, bool]
# Name to (lowest, highest, whole number), as in the prompt; the orchestrator clips other values to these bounds.
_HYPERPARAMETERS: dict[str, _Bounds] = {
    name: (*rule.recommended, rule.whole) for name, rule in RULES.items() if rule.recommended is not None
}
_LARGEST = 2**31 - 1
assert HIDDEN_SIZE.recommended is not None
_SIZES_FORM = (
    f"a list of 1 to {RECOMMENDED_HIDDEN_LAYERS} whole numbers from {HIDDEN_SIZE.recommended[0]:g} to "
    f"{HIDDEN_SIZE.recommended[1]:g}, the hidden layers of policy and value network"
)


# What a name does not say.
_MEANINGS = {
    "num_steps": "steps of each of the {num_envs} environments between two updates",
    "target_kl": "an update ends early beyond 1.5 times this",
    "observation_clip": "bound of normalised observations, in standard deviations",
    "reward_clip": "bound of normalised rewards; rare large rewards beyond it are cut",
}


def preset_of(task: agent_pb.ReviserTask) -> Hyperparameters:
    """Return the hyperparameters that the session's algorithm starts from."""
    preset = load_preset(task.brief.environment)
    return preset.sac if task.algorithm == "sac" else preset.ppo


def tunable_values(task: agent_pb.ReviserTask) -> list[str]:
    """Return what a revision may change, each with its range and the value of the preset."""
    preset = preset_of(task)
    lines = []
    for name, (low, high, _) in _numbers(task).items():
        if name == STEPS:
            continue
        value = getattr(preset, name)
        meaning = f": {_MEANINGS[name].format(num_envs=preset.num_envs)}" if name in _MEANINGS else ""
        lines.append(f"{name}, {low:g} to {high:g}, preset {'none' if value is None else format(value, 'g')}{meaning}")
    lines.append(f"{SIZES}, {_SIZES_FORM}, preset {list(preset.hidden_sizes)}")
    if task.highest_steps:
        now = task.brief.facts.steps_per_member
        lines.append(
            f"{STEPS}, {task.lowest_steps} to {task.highest_steps}, now {now}: how long each seed of all configs trains"
        )
    return lines


def _numbers(task: agent_pb.ReviserTask) -> Mapping[str, _Bounds]:
    """The numbers that the algorithm has; for SAC without the entropy coefficient, which it tunes by itself."""
    numbers = dict(_HYPERPARAMETERS)
    if task.algorithm == "sac":
        names = set(sac.HYPERPARAMETERS) - {"entropy_coef"}
        numbers = {name: bounds for name, bounds in numbers.items() if name in names}
    if task.highest_steps:
        numbers[STEPS] = (task.lowest_steps, task.highest_steps, True)
    return numbers


def parse_hyperparameters(text: str, problems: list[str], task: agent_pb.ReviserTask) -> dict[str, HyperparameterValue]:
    """Return the values of the reply's JSON by name, the steps of the training among them.

    :param problems: gets what is wrong with them.
    """
    numbers = _numbers(task)
    objects = [block for block in blocks(text) if block.language == "json"]
    if not objects:
        return {}
    try:
        data = json.loads(objects[0].text)
    except ValueError as error:
        problems.append(f"the JSON of '## Hyperparameters' cannot be read ({error})")
        return {}
    if not isinstance(data, dict) or len(objects) > 1:
        problems.append("'## Hyperparameters' must hold one JSON object")
        return {}
    changes: dict[str, HyperparameterValue] = {}
    for name, value in data.items():
        if name == SIZES:
            if (sizes := _sizes(value)) is None:
                problems.append(f"{SIZES} is {value!r}; it must be {_SIZES_FORM}")
            else:
                changes[name] = sizes
        elif (problem := _hyperparameter_problem(name, value, numbers)) is not None:
            problems.append(problem)
        else:
            changes[name] = int(value) if numbers[name][2] else float(value)
    return changes


def _hyperparameter_problem(name: str, value: Any, numbers: Mapping[str, _Bounds]) -> str | None:
    if name not in numbers:
        return f"there is no hyperparameter {name!r}; there are {', '.join([*numbers, SIZES])}"
    low, high, whole = numbers[name]
    number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if not number or abs(value) > _LARGEST or (whole and value != int(value)):
        kind = "a whole number" if whole else "a number"
        return f"{name} is {value!r}; it must be {kind} from {low:.10g} to {high:.10g}"
    return None


def _sizes(value: Any) -> tuple[int, ...] | None:
    """The sizes of hidden layers; None for anything else. The orchestrator clips them."""
    whole = isinstance(value, list) and all(HIDDEN_SIZE.allows(size) for size in value)
    return tuple(value) if whole and 1 <= len(value) <= MAX_HIDDEN_LAYERS else None
