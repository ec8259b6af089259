"""Speed of our batch of HalfCheetahs against the bare simulator's batch, on the same threads.

Prints one JSON object. ``share_of_limit`` is what remains of the bare simulator's speed after observations, rewards,
terminations, auto-reset and the fields that a reward reads; Gymnasium's own loop is the peer.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import statistics
import time
from collections.abc import Callable

import gymnasium
import numpy as np
from dressage.envs import make_batch
from dressage.envs.loading import load_model
from dressage.envs.tasks import task
from mujoco.batch import Batch

ENVIRONMENT = "HalfCheetah-v5"


def ours(count: int, threads: int, actions: np.ndarray) -> Callable[[], int]:
    batch = make_batch(ENVIRONMENT, count, num_threads=threads)
    batch.reset(list(range(count)))

    def run() -> int:
        for action in actions:
            step = batch.step(action)
            _ = step.next_state.x_velocity
        return len(actions) * count

    return run


def bare(count: int, threads: int, actions: np.ndarray) -> Callable[[], int]:
    batch = Batch(load_model(task(ENVIRONMENT).xml), count, threads)
    batch.reset()
    control = batch.bind("ctrl")

    def run() -> int:
        for action in actions:
            control[:] = action
            batch.step(nstep=5)
        return len(actions) * count

    return run


def peer(actions: np.ndarray) -> Callable[[], int]:
    env = gymnasium.make(ENVIRONMENT)
    env.reset(seed=0)

    def run() -> int:
        for action in actions.reshape(-1, actions.shape[-1])[:2000]:
            *_, terminated, truncated, _ = env.step(action)
            if terminated or truncated:
                env.reset()
        return 2000

    return run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--envs", type=int, default=144)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--repeats", type=int, default=7)
    chosen = parser.parse_args()
    shape = (chosen.steps, chosen.envs, 6)
    actions = np.random.default_rng(0).uniform(-1, 1, size=shape).astype(np.float32)
    runs = {
        "ours": ours(chosen.envs, chosen.threads, actions),
        "limit": bare(chosen.envs, chosen.threads, actions),
        "peer": peer(actions),
    }
    speeds: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(chosen.repeats):  # in turn, so that other load falls on all alike
        for name, run in runs.items():
            start = time.perf_counter()
            steps = run()
            speeds[name].append(steps / (time.perf_counter() - start))
    median = {name: statistics.median(values) for name, values in speeds.items()}
    result = {
        "name": "env_stepping",
        "unit": "environment steps/s",
        "ours": round(median["ours"]),
        "peer": round(median["peer"]),
        "ratio": round(median["ours"] / median["peer"], 2),
        "limit": round(median["limit"]),
        "share_of_limit": round(median["ours"] / median["limit"], 3),
        "repeats": chosen.repeats,
        "spread": {name: [round(min(values)), round(max(values))] for name, values in speeds.items()},
        "cores": chosen.threads,
        "versions": {name: importlib.metadata.version(name) for name in ("mujoco", "gymnasium", "numpy")},
        "notes": f"{ENVIRONMENT}, {chosen.envs} environments; limit: bare mujoco.batch; peer: one Gymnasium loop",
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
