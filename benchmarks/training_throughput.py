"""Environment steps per second of 3 seeds x 3 configs on HalfCheetah-v5, compared with SB3 PPO as Prompt2Policy runs it.

The reward is speed - 0.1 * |a|^2. Ours: one process that trains all nine members. The peer: one process per member
with `SubprocVecEnv`, `VecNormalize` and a Python reward for each step; as many processes at a time as cores, one
thread each. `SETTINGS` pairs hyperparameters and the peer's number of environments: its presets scale with that number, and
it is fastest with 16. ``ours``, ``peer`` and ``ratio`` are those of our preset and the peer's preset with 16 environments;
``settings`` has all.

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
from dataclasses import dataclass
from typing import Any

import numpy as np
from dressage.training.hyperparameters import Hyperparameters
from dressage.training.preset import load_preset
from support.children import available, measure, measure_together, versions

ENVIRONMENT = "HalfCheetah-v5"
OBSERVATION, ACTION = 17, 6
WHAT, UNIT = "Training of 9 members, HalfCheetah-v5", "environment steps/s"
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


@dataclass(frozen=True)
class Setting:
    """One comparison: hyperparameters of both sides and the peer's number of environments."""

    what: str
    """Row in the table."""
    ours: dict[str, Any]
    """Changes of our preset."""
    peer: str
    """The peer's setting (`support.peer`)."""
    num_envs: int
    """Environments in each process of the peer."""
    goal: float | None = None
    """Goal for the ratio."""


SETTINGS = {
    "preset_16": Setting("our preset; peer: its preset, 16 environments per process", {}, "preset", 16),
    "preset": Setting("our preset; peer: its preset, 1 environment per process", {}, "preset", 1, 30.0),
    "sb3_defaults_16": Setting(
        "SB3's default hyperparameters on both sides; peer: 16 environments", SB3_DEFAULTS, "sb3_defaults", 16
    ),
    "sb3_defaults": Setting(
        "SB3's default hyperparameters on both sides; peer: 1 environment", SB3_DEFAULTS, "sb3_defaults", 1, 15.0
    ),
    "peers_own": Setting("the peer's hyperparameters on both sides; peer: 1 environment", PEERS_OWN, "preset", 1, 6.0),
}
HEADLINE = "preset_16"


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
    """Measure ours and the peer in turn."""
    setting = SETTINGS[name]
    values = setting.ours
    ours: list[dict[str, Any]] = []
    peer: list[float] = []
    for repeat in range(repeats):
        given = {"environment": ENVIRONMENT, "members": members(values), "threads": cores, "seconds": seconds,
                 "bare": True}  # fmt: skip
        ours.append(measure("ours", given, threads=cores, cores=cores))
        tasks = [
            {
                "environment": ENVIRONMENT,
                "setting": setting.peer,
                "num_envs": setting.num_envs,
                "seed": repeat * cores + i,
                "seconds": seconds,
            }
            for i in range(min(cores, SEEDS * len(CONFIGS)))
        ]
        peer.append(sum(result["rate"] for result in measure_together("peer", tasks, threads=1, cores=cores)))
    h = Hyperparameters.from_dict(values, base=load_preset(ENVIRONMENT).ppo)
    flops, physics = flops_per_step(h), statistics.median(result["bare_rate"] for result in ours)
    arithmetic = arithmetic_speed() / flops
    mine = statistics.median(result["rate"] for result in ours)
    collect, share = (statistics.median(result[name] for result in ours) for name in ("collect_rate", "collect_share"))
    return {
        "ours": round(mine),
        "peer": round(statistics.median(peer)),
        "ratio": round(mine / statistics.median(peer), 1),
        "goal": setting.goal,
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


def row(name: str, result: dict[str, Any]) -> dict[str, Any]:
    """The row of the table for a setting."""
    figures = {key: result[key] for key in ("ours", "peer", "ratio")}
    share = round(result["ours"] / result["limit"], 3)
    return {"what": f"{WHAT}, {SETTINGS[name].what}", "unit": UNIT, **figures, "share_of_limit": share}


def note(name: str, result: dict[str, Any]) -> str:
    """A setting's figures and limits in words."""
    goal = "" if result["goal"] is None else f" (goal {result['goal']:g})"
    return (
        f"{name}: ours {result['ours']:,}, peer {result['peer']:,}, {result['ratio']} times{goal}; limits: physics "
        f"{result['physics_limit']:,} (collection alone at {result['collect_share_of_physics']:.0%} of it), arithmetic "
        f"{result['arithmetic_limit']:,}, both {result['limit']:,}"
    )


def _ends(values: list[float]) -> list[int]:
    return [round(min(values)), round(max(values))]


def main() -> int:
    """Measure and print the object."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cores", type=int, default=min(2, available()))
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=10.0, help="steady seconds in a measurement")
    parser.add_argument("--settings", nargs="*", choices=SETTINGS, default=list(SETTINGS))
    given = parser.parse_args()
    names = list(dict.fromkeys([HEADLINE, *given.settings]))
    measured = {
        name: one_setting(name, cores=given.cores, repeats=given.repeats, seconds=given.seconds) for name in names
    }
    first = measured[HEADLINE]
    report = {
        "name": "training_throughput",
        "what": WHAT,
        "unit": UNIT,
        "ours": first["ours"],
        "peer": first["peer"],
        "ratio": first["ratio"],
        "limit": first["limit"],
        "share_of_limit": round(first["ours"] / first["limit"], 3),
        "repeats": given.repeats,
        "spread": first["spread"],
        "cores": given.cores,
        "versions": versions(),
        "settings": measured,
        "rows": [row(name, result) for name, result in measured.items()],
        "notes": f"{SEEDS} seeds x {len(CONFIGS)} configs on {ENVIRONMENT}. "
        + ". ".join(note(name, result) for name, result in measured.items())
        + ".",
    }
    print(json.dumps(report))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
