"""Wall-clock time until the mean over seeds reaches the return that the peer's preset has after 1M steps.

The peer's trainings take from a quarter of an hour to more than an hour a seed, so they are recorded once, by
``--record ENV``, into ``benchmarks/recorded/time_to_return.json``: the return after 1M steps and the seconds, per
seed, with the machine. A benchmark runs ours and, for a short while, the peer again; the peer's recorded seconds are
scaled by its speed now. ``--record ENV --stacked`` trains with the peer's hyperparameters by our own PPO, which is the
same algorithm (``docs/learning/tried.md``) and takes half an hour: the returns are the peer's but for chance (on Ant also
for the cost of contact forces, which our reward leaves out), and its seconds are 1M steps at its speed now.
Without a recording, the return published for the same hyperparameters is the target (`PUBLISHED`), with the same seconds.

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
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from support.children import available, measure, versions
from support.peer import stacked_preset

ENVIRONMENTS = {"HalfCheetah-v5": 20.0, "Hopper-v5": 20.0, "Walker2d-v5": 20.0, "Ant-v5": 10.0}
"""With the goal for each."""
PUBLISHED = {
    "HalfCheetah-v5": (5819.099, "preset"),
    "Hopper-v5": (2410.435, "preset"),
    "Walker2d-v5": (3478.798, "preset"),
    "Ant-v5": (1327.158, "sb3_defaults"),
}
"""Mean return of SB3's PPO after 1M steps (one training, 150 episodes and more by the deterministic policy) on the -v3
environments, as in the table at `PUBLISHED_AT`, and the peer's setting with the same hyperparameters, whose speed counts. The
preset that the peer took over for Ant is not what was published. Elsewhere the peer has another
policy: no small initial deviation and no rectifiers for HalfCheetah and Hopper, 256 units for 64 in Walker2d's layers."""
PUBLISHED_AT = "https://github.com/DLR-RM/rl-baselines3-zoo/blob/master/benchmark.md"
RECORDED = Path(__file__).parent / "recorded" / "time_to_return.json"
PEER_STEPS = 1_000_000
WHAT = "Time to the peer's return after 1M steps, 3 seeds"
SEEDS = 3
EVERY = 50_000
MAX_STEPS = 5_000_000
RECORDING = 4 * 3600.0
"""Seconds that one training of the peer may take."""


def recorded() -> dict[str, Any]:
    """What has been recorded, by environment."""
    if not RECORDED.is_file():
        return {}
    entries: dict[str, Any] = json.loads(RECORDED.read_text("utf-8"))
    return entries


def record(environment: str, *, stacked: bool, cores: int, steps: int, episodes: int, seconds: float) -> None:
    """Trains with the peer's hyperparameters and writes down what came out, and how fast the peer was."""
    task = {"environment": environment, "record_steps": steps, "episodes": episodes}
    runs, speed = [], peer_speed(environment, cores=cores, seconds=seconds)
    for run in (_by_ours if stacked else _by_peer)(task, cores=cores):
        runs.append(run)
        took = "" if stacked else f" in {run['seconds']:.0f} s"
        print(f"{environment} seed {run['seed']}: {statistics.mean(run['returns']):.0f}{took}", file=sys.stderr)
    machine = {"processor": platform.processor() or platform.machine(), "cores": cores, "peer_steps_per_second": speed}
    entry = {"steps": steps, "stacked": stacked, "runs": runs, "machine": machine, "versions": versions()}
    RECORDED.parent.mkdir(parents=True, exist_ok=True)
    RECORDED.write_text(json.dumps({**recorded(), environment: entry}, indent=2, sort_keys=True) + "\n", "utf-8")


def _by_peer(task: dict[str, Any], *, cores: int) -> Iterator[dict[str, Any]]:
    """The peer itself, seed after seed."""
    for seed in range(SEEDS):
        given = {**task, "setting": "preset", "num_envs": 1, "seed": seed}
        yield {"seed": seed, **measure("peer", given, threads=1, cores=cores, timeout=RECORDING)}


def _by_ours(task: dict[str, Any], *, cores: int) -> Iterator[dict[str, Any]]:
    """Our PPO, all seeds at once."""
    members = [(stacked_preset(task["environment"]), seed) for seed in range(SEEDS)]
    given = {**task, "members": members, "threads": cores}
    result = measure("ours", given, threads=cores, cores=cores, timeout=RECORDING)
    for seed, returns in enumerate(result["returns"]):
        yield {"seed": seed, "returns": returns}


def peer_speed(environment: str, *, setting: str = "preset", cores: int, seconds: float) -> float:
    """The peer's steps per second here and now."""
    task = {"environment": environment, "setting": setting, "num_envs": 1, "seed": 0, "seconds": seconds}
    return float(measure("peer", task, threads=1, cores=cores)["rate"])


def one(environment: str, entry: dict[str, Any] | None, *, cores: int, repeats: int, seconds: float) -> dict[str, Any]:
    """Compare ours with the peer's, recorded and scaled, or published (``entry`` is None then)."""
    setting = "preset"
    if entry is None:
        (target, setting), steps = PUBLISHED[environment], float(PEER_STEPS)
    else:
        target = statistics.mean(statistics.mean(run["returns"]) for run in entry["runs"])
        steps = float(entry["steps"])
        if not entry["stacked"]:
            steps = (
                statistics.median(run["seconds"] for run in entry["runs"]) * entry["machine"]["peer_steps_per_second"]
            )
    ours, peer = [], []
    reached = True
    for repeat in range(repeats):
        members = [({}, repeat * SEEDS + seed) for seed in range(SEEDS)]
        task = {"environment": environment, "members": members, "threads": cores, "target": target, "every": EVERY,
                "max_steps": MAX_STEPS, "episodes": 4}  # fmt: skip
        result = measure("ours", task, threads=cores, cores=cores)
        reached = reached and result["reached"]
        ours.append(result["seconds"])
        peer.append(steps / peer_speed(environment, setting=setting, cores=cores, seconds=seconds))
    mine, theirs = statistics.median(ours), statistics.median(peer)
    return {
        "target_return": round(target, 1),
        "target_from": PUBLISHED_AT if entry is None else "its preset, by our PPO" if entry["stacked"] else "recorded",
        "reached": reached,
        "ours": round(mine, 1),
        "peer": round(theirs),
        "ratio": round(theirs / mine, 1) if reached else None,
        "goal": ENVIRONMENTS[environment],
        "spread": {"ours": [round(min(ours), 1), round(max(ours), 1)], "peer": [round(min(peer)), round(max(peer))]},
    }


def table_row(environment: str, result: dict[str, Any]) -> dict[str, Any]:
    """The row of the table for an environment."""
    figures = {key: result[key] for key in ("ours", "peer", "ratio")}
    return {"what": f"{WHAT}, {environment}", "unit": "seconds", **figures, "share_of_limit": None}


def main() -> int:
    """Measure and print the object, or record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cores", type=int, default=min(2, available()))
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=30.0, help="seconds of the peer's short run")
    parser.add_argument("--record", metavar="ENV", choices=ENVIRONMENTS, help="record the peer's trainings on ENV")
    parser.add_argument("--stacked", action="store_true", help="record by our own PPO")
    parser.add_argument("--env", action="append", choices=ENVIRONMENTS, help="repeatable; all if none is named")
    parser.add_argument("--record-steps", type=int, default=PEER_STEPS, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.stacked and not given.record:
        parser.error("--stacked is about how to --record")
    if given.record:
        record(
            given.record,
            stacked=given.stacked,
            cores=given.cores,
            steps=given.record_steps,
            episodes=10,
            seconds=given.seconds,
        )
        return 0
    known, names = recorded(), given.env or list(ENVIRONMENTS)
    options = {"cores": given.cores, "repeats": given.repeats, "seconds": given.seconds}
    measured = {name: one(name, known.get(name), **options) for name in names}
    first = measured[names[0]]
    lines = [
        f"{name}: {row['target_return']:,} ({row['target_from']}) after {row['ours']} s, the peer after {row['peer']:,} s: "
        + (f"{row['ratio']} times sooner (goal {row['goal']:g})" if row["reached"] else "not reached by ours")
        for name, row in measured.items()
    ]
    report = {
        "name": "time_to_return",
        "what": f"{WHAT}, {names[0]}",
        "unit": "seconds",
        "ours": first["ours"],
        "peer": first["peer"],
        "ratio": first["ratio"],
        "limit": None,
        "share_of_limit": None,
        "repeats": given.repeats,
        "spread": first["spread"],
        "cores": given.cores,
        "versions": versions(),
        "environments": measured,
        "rows": [table_row(name, result) for name, result in measured.items()],
        "notes": f"{SEEDS} seeds. " + ". ".join(lines) + ".",
    }
    print(json.dumps(report))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
