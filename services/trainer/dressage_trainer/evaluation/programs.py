"""Plays programs in a player's process: the engine interprets them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from dressage.programs.families import SOLVED, program_task


def answer(request: Mapping[str, Any]) -> dict[str, Any]:
    """Play a program from each initial state.

    :param request: ``environment``, ``profile``, ``program``, ``seeds`` (the states) and ``trace``: a text of the episode with
        the lowest return, or empty.
    :returns: the reply of `player.play`, with ``trace``.
    :raises InvalidArgument: for a program that the engine cannot run.
    """
    task = program_task(request["environment"], request["profile"])
    program, states = task.parse(request["program"]), request["seeds"]
    outcomes = task.play(program, states)
    returns = np.array([outcome.reward for outcome in outcomes], np.float64)
    return {
        "returns": returns,
        "lengths": np.array([outcome.steps for outcome in outcomes], np.int64),
        "successes": (returns >= SOLVED).astype(np.int8),
        "paths": [],
        "trace": task.worst_episode(program, states, request["trace"]) if request["trace"] else "",
    }
