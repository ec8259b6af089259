"""Aggregate environment steps per second of 3 seeds x 3 configs on HalfCheetah-v5, beside SB3 PPO as Prompt2Policy runs
it.

The reward is speed - 0.1 * |a|^2. Ours: one process that trains all nine members. The peer: one process per member
with `SubprocVecEnv`, `VecNormalize` and a Python reward for each step; as many processes at a time as cores, one
thread each. Three settings: our preset (against the peer's preset), SB3's default hyperparameters on both sides (64 x
64, minibatch 64, 10 epochs), and the peer's own on both sides ([256, 256], minibatch 64, 20 epochs). ``ours``,
``peer`` and ``ratio`` are of the first; ``settings`` has all.

Limits: bare `mujoco.batch` stepping of the same simulations by the same actions, in turn with collection in the same
process (physics; ``collect_share_of_physics`` is the median of the pairs), and the floating-point work that the
algorithm cannot do without, at the speed of this machine's own matrix product (arithmetic); ``limit`` is both one
after the other.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import time
from typing import Any

import numpy as np
from dressage.training.hyperparameters import Hyperparameters
from dressage.training.preset import load_preset
from support.children import available, measure, measure_together, versions

ENVIRONMENT = "HalfCheetah-v5"
OBSERVATION, ACTION = 17, 6
SEEDS = 3
CONFIGS: list[dict[str, Any]] = [{}, {"clip_range": 0.1}, {"entropy_coef": 0.01}]
SB3_DEFAULTS: dict[str, Any] = dict(
    num_envs=16, num_steps=128, minibatch_size=64, epochs=10, hidden_sizes=[64, 64], learning_rate=3e-4, discount=0.99,
    gae_lambda=0.95, initial_log_std=0.0, entropy_coef=0.0,
)  # fmt: skip
PEERS_OWN: dict[str, Any] = {
    **SB3_DEFAULTS, "num_steps": 32, "epochs": 20, "hidden_sizes": [256, 256], "learning_rate": 2.06e-5, "discount": 0.98,
    "gae_lambda": 0.92,
}  # fmt: skip
SETTINGS: dict[str, tuple[dict[str, Any], str, float]] = {
    "preset": ({}, "preset", 30.0),
    "sb3_defaults": (SB3_DEFAULTS, "sb3_defaults", 15.0),
    "peers_own": (PEERS_OWN, "preset", 6.0),
}
"""By name: ours, the peer's setting, and the goal for the ratio."""


def members(values: dict[str, Any]) -> list[tuple[dict[str, Any], int]]:
    """3 seeds x 3 configs."""
    return [({**values, **config}, seed) for config in CONFIGS for seed in range(SEEDS)]


def flops_per_step(h: Hyperparameters) -> float:
    """Floating-point operations that one environment step needs: inference once, and each epoch's forward and backward pass."""
    sizes = [OBSERVATION, *h.hidden_sizes]
    body = sum(a * b for a, b in itertools.pairwise(sizes))
    policy, value = body + sizes[-1] * ACTION, body + sizes[-1]
    # A pass forward is 2 operations a weight, backward 4 (for the weights and for the inputs).
    return 2.0 * policy + 6.0 * h.epochs * (policy + value)


def arithmetic_speed(seconds: float = 1.0) -> float:
    """Single-precision operations per second of this machine's matrix product, on all cores given."""
    size = 1024
    a, b = (np.random.default_rng(i).standard_normal((size, size), dtype=np.float32) for i in range(2))
    a @ b
    began, count = time.perf_counter(), 0
    while time.perf_counter() - began < seconds:
        a @ b
        count += 1
    return 2.0 * size**3 * count / (time.perf_counter() - began)


def one_setting(name: str, *, cores: int, repeats: int, seconds: float) -> dict[str, Any]:
    """Ours and the peer's in turn."""
    values, peers, goal = SETTINGS[name]
    ours: list[dict[str, Any]] = []
    peer: list[float] = []
    for repeat in range(repeats):
        given = {"environment": ENVIRONMENT, "members": members(values), "threads": cores, "seconds": seconds,
                 "bare": True}  # fmt: skip
        ours.append(measure("ours", given, threads=cores, cores=cores))
        told = [
            {
                "environment": ENVIRONMENT,
                "setting": peers,
                "num_envs": 1,
                "seed": repeat * cores + i,
                "seconds": seconds,
            }
            for i in range(min(cores, SEEDS * len(CONFIGS)))
        ]
        peer.append(sum(result["rate"] for result in measure_together("peer", told, threads=1, cores=cores)))
    h = Hyperparameters.from_dict(values, base=load_preset(ENVIRONMENT).ppo)
    flops, physics = flops_per_step(h), statistics.median(result["bare_rate"] for result in ours)
    arithmetic = arithmetic_speed() / flops
    mine = statistics.median(result["rate"] for result in ours)
    collect, share = (statistics.median(result[name] for result in ours) for name in ("collect_rate", "collect_share"))
    return {
        "ours": round(mine),
        "peer": round(statistics.median(peer)),
        "ratio": round(mine / statistics.median(peer), 1),
        "goal": goal,
        "spread": {"ours": _ends([r["rate"] for r in ours]), "peer": _ends(peer)},
        "collect": round(collect),
        "collect_share_of_physics": round(share, 3),
        "update": round(statistics.median(result["update_rate"] for result in ours)),
        "startup_seconds": round(statistics.median(result["startup_seconds"] for result in ours), 1),
        "physics_limit": round(physics),
        "megaflop_per_step": round(flops / 1e6, 3),
        "arithmetic_limit": round(arithmetic),
        "limit": round(1.0 / (1.0 / physics + 1.0 / arithmetic)),
    }


def _ends(values: list[float]) -> list[int]:
    return [round(min(values)), round(max(values))]


def main() -> int:
    """Measures and prints the object."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cores", type=int, default=min(2, available()))
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=10.0, help="steady seconds in a measurement")
    parser.add_argument("--settings", nargs="*", choices=SETTINGS, default=list(SETTINGS))
    given = parser.parse_args()
    names = list(dict.fromkeys(["preset", *given.settings]))
    found = {name: one_setting(name, cores=given.cores, repeats=given.repeats, seconds=given.seconds) for name in names}
    first = found["preset"]
    lines = [
        f"{name}: ours {row['ours']:,}, peer {row['peer']:,}, {row['ratio']} times (goal {row['goal']:g}); limits: physics "
        f"{row['physics_limit']:,} (collection alone at {row['collect_share_of_physics']:.0%} of it), arithmetic "
        f"{row['arithmetic_limit']:,}, both {row['limit']:,}"
        for name, row in found.items()
    ]
    report = {
        "name": "training_throughput",
        "unit": "environment steps/s",
        "ours": first["ours"],
        "peer": first["peer"],
        "ratio": first["ratio"],
        "limit": first["limit"],
        "share_of_limit": round(first["ours"] / first["limit"], 3),
        "repeats": given.repeats,
        "spread": first["spread"],
        "cores": given.cores,
        "versions": versions(),
        "settings": found,
        "notes": f"{SEEDS} seeds x {len(CONFIGS)} configs on {ENVIRONMENT}. " + ". ".join(lines) + ".",
    }
    print(json.dumps(report))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
