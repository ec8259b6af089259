"""Bare batched simulation by random actions on one thread, in a process of its own.

Argument: one JSON object with ``environment``, ``rows`` and ``seconds``.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import numpy as np


def rate(environment: str, rows: int, seconds: float) -> float:
    """Environment steps per second."""
    from dressage.envs.cards import load_card
    from dressage.envs.tasks import task
    from mujoco.batch import Batch

    card = load_card(environment)
    model: Any = task(card.id).load()
    batch: Any = Batch(model, rows, 1)
    control, substeps = batch.bind("ctrl"), round(card.time_step / model.opt.timestep)
    actions = np.random.default_rng(0).uniform(-1, 1, (16, *control.shape))
    batch.step(nstep=substeps)
    began, steps = time.perf_counter(), 0
    while time.perf_counter() - began < seconds:
        control[:] = actions[steps % len(actions)]
        batch.step(nstep=substeps)
        steps += 1
    return rows * steps / (time.perf_counter() - began)


def main() -> None:
    """Measures and prints one JSON object."""
    given = json.loads(sys.argv[1])
    print(json.dumps({"rate": rate(given["environment"], given["rows"], given["seconds"])}))
