"""Wall-clock time until the mean over seeds reaches the return that the peer's preset has after 1M steps.

The peer's trainings take from a quarter of an hour to hours a seed, so they are recorded once, into
``benchmarks/recorded/time_to_return.json``. ``--record ENV`` runs them: the return after 1M steps and the seconds, per
seed, with the machine. Beside ours the peer runs for a short while again, and its recorded seconds are scaled by how
fast it is here and now. ``--record ENV --returns-only`` has our own PPO train at the peer's hyperparameters on as many
environments (one) instead, since its update equals SB3's weight for weight (tests/unit/trainer/test_trainer_sb3_equality.py);
the peer's seconds are then 1M steps at its speed here and now. So they are where nothing was recorded and the return that
somebody published for similar hyperparameters stands in (`PUBLISHED`). An environment with none of these is left out and
named.

Ours: 3 seeds in one process, from the start of the process (imports and compilation count); the policies are
evaluated every so many steps on stock Gymnasium, and that time does not count. ``ours`` and ``peer`` are seconds on
the first environment; ``environments`` has all.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import sys
from pathlib import Path
from typing import Any

from support.children import available, measure, versions
from support.peer import PRESETS

ENVIRONMENTS = {"HalfCheetah-v5": 20.0, "Hopper-v5": 20.0, "Walker2d-v5": 20.0, "Ant-v5": 10.0}
"""With the goal for each."""
PUBLISHED = {
    "HalfCheetah-v5": (5836.27, "https://huggingface.co/sb3/ppo-HalfCheetah-v3"),
    "Hopper-v5": (2410.11, "https://huggingface.co/sb3/ppo-Hopper-v3"),
}
"""Mean return of 10 deterministic episodes after 1M steps of SB3's PPO with the hyperparameters that the peer's preset took
over, on the -v3 environments, and where it stands. Published were smaller initial deviations and rectifiers besides, which
the peer does not take over."""

RECORDED = Path(__file__).parent / "recorded" / "time_to_return.json"
PEER_STEPS = 1_000_000
SEEDS = 3
EVERY = 50_000
MAX_STEPS = 5_000_000
NOT_RECORDED = 3
OURS = "our PPO at the peer's hyperparameters"


def recorded() -> dict[str, Any]:
    """What has been recorded, by environment."""
    if not RECORDED.is_file():
        return {}
    found: dict[str, Any] = json.loads(RECORDED.read_text("utf-8"))
    return found


def record(environment: str, *, cores: int, steps: int, episodes: int, seconds: float) -> None:
    """Trains the peer, seed after seed, and writes down what came out and how fast it was."""
    runs, speed = [], peer_speed(environment, cores=cores, seconds=seconds)
    for seed in range(SEEDS):
        told = {"environment": environment, "setting": "preset", "num_envs": 1, "seed": seed}
        run = measure("peer", {**told, "record_steps": steps, "episodes": episodes}, threads=1, cores=cores)
        runs.append({"seed": seed, **run})
        print(
            f"{environment} seed {seed}: {statistics.mean(run['returns']):.0f} in {run['seconds']:.0f} s",
            file=sys.stderr,
        )
    machine = {"processor": platform.processor() or platform.machine(), "cores": cores, "peer_steps_per_second": speed}
    keep(environment, {"steps": steps, "runs": runs, "machine": machine, "versions": versions()})


def record_returns(environment: str, *, cores: int, steps: int, episodes: int) -> None:
    """Trains our PPO at the peer's hyperparameters and writes down the returns."""
    values = peers_hyperparameters(environment)
    told = {"environment": environment, "members": [(values, seed) for seed in range(SEEDS)], "threads": cores}
    found = measure("ours", {**told, "record_steps": steps, "episodes": episodes}, threads=cores, cores=cores)
    runs = [{"seed": seed, "returns": returns} for seed, returns in enumerate(found["returns"])]
    entry = {"steps": steps, "runs": runs, "by": OURS, "hyperparameters": values, "versions": versions()}
    keep(environment, entry)


def peers_hyperparameters(environment: str) -> dict[str, Any]:
    """The peer's preset at one environment, by our names."""
    rate, steps, batches, epochs, discount, gae_lambda, clip, entropy, value, norm = PRESETS[environment]
    return dict(
        num_envs=1, num_steps=steps, minibatch_size=steps // batches, epochs=epochs, hidden_sizes=[256, 256],
        learning_rate=rate, discount=discount, gae_lambda=gae_lambda, clip_range=clip, entropy_coef=entropy,
        value_coef=value, max_grad_norm=norm, initial_log_std=0.0, normalize_observation=True, normalize_reward=True,
    )  # fmt: skip


def keep(environment: str, entry: dict[str, Any]) -> None:
    """Writes an environment's entry among the recorded ones."""
    RECORDED.parent.mkdir(parents=True, exist_ok=True)
    RECORDED.write_text(json.dumps({**recorded(), environment: entry}, indent=2, sort_keys=True) + "\n", "utf-8")


def peer_speed(environment: str, *, cores: int, seconds: float) -> float:
    """The peer's steps per second here and now."""
    told = {"environment": environment, "setting": "preset", "num_envs": 1, "seed": 0, "seconds": seconds}
    return float(measure("peer", told, threads=1, cores=cores)["rate"])


def one(environment: str, entry: dict[str, Any] | None, *, cores: int, repeats: int, seconds: float) -> dict[str, Any]:
    """Ours beside the peer's, recorded and scaled, or published (``entry`` is None then)."""
    if entry is None:
        target, steps = PUBLISHED[environment][0], float(PEER_STEPS)
    else:
        target, steps = statistics.mean(statistics.mean(run["returns"]) for run in entry["runs"]), float(entry["steps"])
        if "machine" in entry:
            recorded_seconds = statistics.median(run["seconds"] for run in entry["runs"])
            steps = recorded_seconds * entry["machine"]["peer_steps_per_second"]
    ours, peer = [], []
    reached = True
    for repeat in range(repeats):
        members = [({}, repeat * SEEDS + seed) for seed in range(SEEDS)]
        told = {"environment": environment, "members": members, "threads": cores, "target": target, "every": EVERY,
                "max_steps": MAX_STEPS, "episodes": 4}  # fmt: skip
        found = measure("ours", told, threads=cores, cores=cores)
        reached = reached and found["reached"]
        ours.append(found["seconds"])
        peer.append(steps / peer_speed(environment, cores=cores, seconds=seconds))
    mine, theirs = statistics.median(ours), statistics.median(peer)
    return {
        "target_return": round(target, 1),
        "target_from": PUBLISHED[environment][1] if entry is None else entry.get("by", "recorded"),
        "reached": reached,
        "ours": round(mine, 1),
        "peer": round(theirs),
        "ratio": round(theirs / mine, 1) if reached else None,
        "goal": ENVIRONMENTS[environment],
        "spread": {"ours": [round(min(ours), 1), round(max(ours), 1)], "peer": [round(min(peer)), round(max(peer))]},
    }


def main() -> int:
    """Measures and prints the object, or records."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cores", type=int, default=min(2, available()))
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=30.0, help="seconds of the peer's short run")
    parser.add_argument("--record", metavar="ENV", choices=ENVIRONMENTS, help="record the peer's trainings on ENV")
    parser.add_argument(
        "--returns-only", action="store_true", help="record by our own PPO at the peer's hyperparameters"
    )
    parser.add_argument("--env", action="append", choices=ENVIRONMENTS, help="repeatable; all if none is named")
    parser.add_argument("--record-steps", type=int, default=PEER_STEPS, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.record and given.returns_only:
        record_returns(given.record, cores=given.cores, steps=given.record_steps, episodes=10)
        return 0
    if given.record:
        record(given.record, cores=given.cores, steps=given.record_steps, episodes=10, seconds=given.seconds)
        return 0
    from dressage.envs.cards import ENVIRONMENT_IDS

    known = recorded()
    asked = given.env or list(ENVIRONMENTS)
    usable = [name for name in asked if (name in known or name in PUBLISHED) and name in ENVIRONMENT_IDS]
    missing = [name for name in asked if name not in usable]
    if not usable:
        print(f"nothing is recorded yet: {sys.argv[0]} --record ENV, for {', '.join(missing)}", file=sys.stderr)
        return NOT_RECORDED
    told = {"cores": given.cores, "repeats": given.repeats, "seconds": given.seconds}
    found = {name: one(name, known.get(name), **told) for name in usable}
    first = found[usable[0]]
    lines = [
        f"{name}: {row['target_return']:,} ({row['target_from']}) after {row['ours']} s, the peer after {row['peer']:,} s: "
        + (f"{row['ratio']} times sooner (goal {row['goal']:g})" if row["reached"] else "not reached by ours")
        for name, row in found.items()
    ]
    absent = f" Not recorded: {', '.join(missing)}." if missing else ""
    report = {
        "name": "time_to_return",
        "unit": f"seconds ({usable[0]})",
        "ours": first["ours"],
        "peer": first["peer"],
        "ratio": first["ratio"],
        "limit": None,
        "share_of_limit": None,
        "repeats": given.repeats,
        "spread": first["spread"],
        "cores": given.cores,
        "versions": versions(),
        "environments": found,
        "notes": f"{SEEDS} seeds. " + ". ".join(lines) + "." + absent,
    }
    print(json.dumps(report))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
