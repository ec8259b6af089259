"""Environment steps per second of the demo's training phase, compared with one SB3 PPO process with its defaults.

Ours: 3 members (seeds) stacked on HalfCheetah-v5, with the demo's reward and preset, by the learner's own parts: batched
simulation, reward, stacked PPO, metrics, a snapshot of each update. The peer: `PPO("MlpPolicy", "HalfCheetah-v5")` as the
library has it, on the CPU, once with as many threads as cores and once with one; the faster counts. The limit: bare
`mujoco.batch` stepping as many simulations, without reward, inference and update.

Each measurement runs in a process of its own, in turn, on the same cores and with the same thread caps. The first update
(compilation, first touch of memory) is left out of the steady rates; the notes also give ours with everything counted.
Prints one JSON object.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from importlib import metadata
from pathlib import Path

from dressage_trainer.speed.threads import learner_environment

ENVIRONMENT = "HalfCheetah-v5"
MEMBERS = 3
DEMO_STEPS_PER_MEMBER = 500_000
REWARD = r"""
LATEX = r"v_x - 0.1\lVert a\rVert^2"
TERMS = {"speed": "forward velocity, m/s", "effort": "squared action, times -0.1"}


def reward(state, action, next_state, memory, np):
    return {"speed": next_state.x_velocity, "effort": -0.1 * np.square(action).sum(-1)}
"""
THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NPROC")
PACKAGES = ("dressage", "jax", "mujoco", "gymnasium", "numpy", "stable-baselines3", "torch")


def measure_ours(cores: int, seconds: float) -> dict[str, float]:
    """Steady steps per second over all members, and the seconds before the steady state."""
    began = time.perf_counter()
    from dressage.contracts.reward import load_reward
    from dressage.envs import EnvOptions, make_batch
    from dressage.envs.cards import load_card
    from dressage_trainer.backends.group import MemberSetup
    from dressage_trainer.backends.stacked import build_groups
    from dressage_trainer.messages import MemberTask, TrainSpec

    card = load_card(ENVIRONMENT)
    members = tuple(MemberTask(member=f"default-s{seed}", hyperparameters={}, seed=seed) for seed in range(MEMBERS))
    spec = TrainSpec(environment=ENVIRONMENT, reward_source=REWARD, members=members, threads=cores)
    with tempfile.TemporaryDirectory() as folder:
        module, root = load_reward(REWARD, card), Path(folder)
        setup = MemberSetup(spec=spec, card=card, options=EnvOptions(), module=module, root=root)
        (group,) = build_groups(setup, make_batch=make_batch)

        def update() -> None:
            group.advance(began=began)
            group.snapshot()  # as the learner keeps one of every update

        update()
        warm, before, updates = time.perf_counter(), group.steps, 0
        while updates < 3 or time.perf_counter() - warm < seconds:
            update()
            updates += 1
        ended = time.perf_counter()
        group.close()
    steady = MEMBERS * (group.steps - before) / (ended - warm)
    startup = warm - began - MEMBERS * before / steady
    total = MEMBERS * DEMO_STEPS_PER_MEMBER
    return {"rate": steady, "startup_seconds": startup, "rate_with_startup": total / (total / steady + startup)}


def measure_peer(cores: int, seconds: float) -> dict[str, float]:
    """Steady steps per second of one SB3 PPO with its defaults, on ``cores`` threads."""
    import torch
    from stable_baselines3 import PPO
    from stable_baselines3.common.callbacks import BaseCallback

    torch.set_num_threads(cores)

    class Clock(BaseCallback):  # type: ignore[misc]
        """Notes when each rollout begins: rollout and update are between two of its times."""

        def __init__(self) -> None:
            super().__init__()
            self.starts: list[float] = []

        def _on_rollout_start(self) -> None:
            self.starts.append(time.perf_counter())

        def _on_step(self) -> bool:
            return len(self.starts) < 3 or self.starts[-1] - self.starts[1] < seconds

    clock = Clock()
    model = PPO("MlpPolicy", ENVIRONMENT, device="cpu", seed=0)
    model.learn(total_timesteps=10**9, callback=clock)
    return {"rate": model.n_steps * (len(clock.starts) - 2) / (clock.starts[-1] - clock.starts[1])}


def measure_limit(cores: int, seconds: float) -> dict[str, float]:
    """Environment steps per second of bare batched simulation with random actions."""
    from dressage.training.preset import load_preset
    from support.bare import rate

    return {"rate": rate(ENVIRONMENT, MEMBERS * load_preset(ENVIRONMENT).ppo.num_envs, cores, seconds)}


def measure_peer_one_thread(cores: int, seconds: float) -> dict[str, float]:
    """As `measure_peer`, on one thread: for so small a network often the faster way."""
    return measure_peer(1, seconds)


MEASUREMENTS = {
    "ours": measure_ours,
    "peer": measure_peer,
    "peer_one_thread": measure_peer_one_thread,
    "limit": measure_limit,
}


def in_child(what: str, *, cores: int, seconds: float) -> dict[str, float]:
    """One measurement in a fresh interpreter with capped threads."""
    environment = {**os.environ, **dict.fromkeys(THREAD_VARIABLES, str(cores))}
    if what == "ours":
        environment.update(learner_environment())
    command = [sys.executable, __file__, "--measure", what, "--cores", str(cores), "--seconds", str(seconds)]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, timeout=600, check=True)
    result: dict[str, float] = json.loads(done.stdout.strip().splitlines()[-1])
    return result


def versions() -> dict[str, str]:
    """Versions of what was measured."""
    return {"python": platform.python_version(), **{name: metadata.version(name) for name in PACKAGES}}


def main() -> int:
    """Measures in turn and prints the object."""
    available = len(os.sched_getaffinity(0))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cores", type=int, default=min(2, available), help="cores and threads of each measurement")
    parser.add_argument("--repeats", type=int, default=3, help="measurements of each kind")
    parser.add_argument("--seconds", type=float, default=8.0, help="steady seconds in a measurement")
    parser.add_argument("--measure", choices=MEASUREMENTS, help=argparse.SUPPRESS)
    given = parser.parse_args()
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: given.cores])
    if given.measure:
        print(json.dumps(MEASUREMENTS[given.measure](given.cores, given.seconds)))
        return 0
    seen: dict[str, list[dict[str, float]]] = {name: [] for name in MEASUREMENTS}
    for _ in range(given.repeats):
        for name, results in seen.items():
            results.append(in_child(name, cores=given.cores, seconds=given.seconds))
    rates = {name: [result["rate"] for result in results] for name, results in seen.items()}
    medians = {name: statistics.median(values) for name, values in rates.items()}
    ours, limit = medians["ours"], medians["limit"]
    peer = max(medians["peer"], medians["peer_one_thread"])
    startup = statistics.median(result["startup_seconds"] for result in seen["ours"])
    whole = statistics.median(result["rate_with_startup"] for result in seen["ours"])
    report = {
        "name": "demo_throughput",
        "what": f"Training of {MEMBERS} members, {ENVIRONMENT}; peer: one SB3 process, 1 environment",
        "unit": "environment steps/s",
        "ours": round(ours),
        "peer": round(peer),
        "ratio": round(ours / peer, 1),
        "limit": round(limit),
        "share_of_limit": round(ours / limit, 3),
        "repeats": given.repeats,
        "spread": {name: [round(min(values)), round(max(values))] for name, values in rates.items()},
        "cores": given.cores,
        "versions": versions(),
        "notes": (
            f"{MEMBERS} members stacked on {ENVIRONMENT} against one stable-baselines3 PPO process with its defaults (1 "
            f"environment, n_steps 2048, batch 64, 10 epochs; {medians['peer']:,.0f} steps/s with {given.cores} threads, "
            f"{medians['peer_one_thread']:,.0f} with one; the faster counts). Medians of the steady state. Imports and "
            f"compilation take us {startup:.1f} s once; over {DEMO_STEPS_PER_MEMBER:,} steps a member that makes "
            f"{whole:,.0f} steps/s, {whole / peer:.1f} times the peer. Limit: bare mujoco.batch stepping."
        ),
    }
    print(json.dumps(report))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
