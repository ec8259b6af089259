"""Speed of our batch of environments against the bare simulator's batch, on the same threads.

Prints one JSON object. ``share_of_limit`` is what remains of the bare simulator's speed after observations, rewards,
terminations, auto-reset and the field that the reward reads; Gymnasium's own loop is the peer. ``--env Ant-v5`` measures the
path of the contact forces, which the bare simulator's batch does not compute; ``--field contact_ffoot`` what reading one costs
where the observation has none.
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
from dressage.envs import load_card, make_batch
from dressage.envs.catalogue import catalogue
from dressage.envs.loading import load_model
from mujoco.batch import Batch


def ours(env_id: str, field: str, count: int, threads: int, actions: np.ndarray) -> Callable[[], int]:
    batch = make_batch(env_id, count, num_threads=threads, fields={field})
    batch.reset(list(range(count)))

    def run() -> int:
        for action in actions:
            step = batch.step(action)
            _ = step.next_state.fields[field]
        return len(actions) * count

    return run


def bare(env_id: str, count: int, threads: int, actions: np.ndarray) -> Callable[[], int]:
    model = load_model(catalogue()[env_id].model_file)
    substeps = round(load_card(env_id).time_step / model.opt.timestep)
    batch = Batch(model, count, threads)
    batch.reset()
    control = batch.bind("ctrl")

    def run() -> int:
        for action in actions:
            control[:] = action
            batch.step(nstep=substeps)
        return len(actions) * count

    return run


def peer(env_id: str, actions: np.ndarray) -> Callable[[], int]:
    env = gymnasium.make(env_id)
    env.reset(seed=0)

    def run() -> int:
        singles = actions.reshape(-1, actions.shape[-1])[:2000]
        for action in singles:
            *_, terminated, truncated, _ = env.step(action)
            if terminated or truncated:
                env.reset()
        return len(singles)

    return run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--env", default="HalfCheetah-v5", metavar="ID")
    parser.add_argument("--field", default="x_velocity", help="the field that is read after each step")
    parser.add_argument("--envs", type=int, default=144)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--repeats", type=int, default=7)
    chosen = parser.parse_args()
    card = load_card(chosen.env)
    card.field(chosen.field)
    low, high = [part.low for part in card.action], [part.high for part in card.action]
    shape = (chosen.steps, chosen.envs, card.action_size)
    actions = np.random.default_rng(0).uniform(low, high, size=shape).astype(np.float32)
    runs = {
        "ours": ours(chosen.env, chosen.field, chosen.envs, chosen.threads, actions),
        "limit": bare(chosen.env, chosen.envs, chosen.threads, actions),
        "peer": peer(chosen.env, actions),
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
        "what": f"Stepping {chosen.envs} environments of {chosen.env}; peer: one Gymnasium loop",
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
        "notes": f"{chosen.env}, {chosen.envs} environments, reads {chosen.field}; "
        "limit: bare mujoco.batch, without contact forces; peer: one Gymnasium loop",
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
