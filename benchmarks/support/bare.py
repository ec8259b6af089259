"""Bare batched simulation: a batch of an environment's model, and how fast it steps by random actions.

As a process, its argument is one JSON object with ``environment``, ``rows``, ``threads`` and ``seconds``.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np


def bare_batch(environment: str, rows: int, threads: int) -> tuple[Any, Callable[[np.ndarray], None]]:
    """A `mujoco.batch.Batch`, and what steps it by (rows, A) actions for one environment step."""
    from dressage.envs.cards import load_card
    from dressage.envs.tasks import task
    from mujoco.batch import Batch

    card = load_card(environment)
    model: Any = task(card.id).load()
    batch: Any = Batch(model, rows, threads)
    control, substeps = batch.bind("ctrl"), round(card.time_step / model.opt.timestep)

    def step(actions: np.ndarray) -> None:
        control[:] = actions
        batch.step(nstep=substeps)

    return batch, step


def rate(environment: str, rows: int, threads: int, seconds: float) -> float:
    """Environment steps per second by random actions, after fifty."""
    batch, step = bare_batch(environment, rows, threads)
    actions = np.random.default_rng(0).uniform(-1, 1, (64, *batch.bind("ctrl").shape))
    began, steps = 0.0, -50
    while steps <= 0 or time.perf_counter() - began < seconds:
        if steps == 0:
            began = time.perf_counter()
        step(actions[steps % len(actions)])
        steps += 1
    return rows * steps / (time.perf_counter() - began)


def main() -> None:
    """Measures and prints one JSON object."""
    given = json.loads(sys.argv[1])
    print(json.dumps({"rate": rate(given["environment"], given["rows"], given["threads"], given["seconds"])}))
