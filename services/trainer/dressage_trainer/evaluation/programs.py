"""Plays programs in a player's process: the engine interprets them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from dressage.programs.families import SOLVED, program_task
from dressage.programs.trace_json import episode_json


def answer(request: Mapping[str, Any]) -> dict[str, Any]:
    """Play a program from each initial state.

    :param request: ``environment``, ``profile``, ``program``, ``seeds`` (the states), ``recorded`` (how many of the first
        episodes become files), ``folder`` (where to, relative to the working folder) and ``trace``: a text of the episode with
        the lowest return, or empty.
    :returns: the reply of `player.play`, with ``trace``.
    :raises InvalidArgument: for a program that the engine cannot run.
    """
    task = program_task(request["environment"], request["profile"])
    program, states = task.parse(request["program"]), request["seeds"]
    outcomes = task.play(program, states)
    returns = np.array([outcome.reward for outcome in outcomes], np.float64)
    paths: list[str] = []
    for index, state in enumerate(states[: request["recorded"]]):
        path = Path(request["folder"]) / f"{index}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(
            episode_json(task.environment, task.profile, state, program, task.trace(program, state)), "utf-8"
        )
        paths.append(str(path))
    return {
        "returns": returns,
        "lengths": np.array([outcome.steps for outcome in outcomes], np.int64),
        "successes": (returns >= SOLVED).astype(np.int8),
        "paths": paths,
        "trace": task.worst_episode(program, states, request["trace"]) if request["trace"] else "",
    }
