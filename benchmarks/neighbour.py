"""How much a training slows down when another process keeps one core busy; ours, and SB3's PPO.

The neighbour is a loop on the first core. Its fair share is half of that core, so that by arithmetic a training on all
of C cores keeps (C - 1/2) / C of its speed. What a fair share comes to here, where cores may share more than they say,
is measured: ``limit`` is the slowdown of one bare simulation a core, processes of their own that never wait for each
other. The peer is SB3 PPO as Prompt2Policy runs it, with the libraries' own thread counts, as it is there; the notes
give it with one thread too. ``ratio`` is how many times the peer's slowdown is ours.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from support.children import available, measure, measure_together, processors, versions

ENVIRONMENT = "HalfCheetah-v5"
MEMBERS, ROWS = 3, 96


@contextmanager
def neighbour(core: int) -> Iterator[None]:
    """A process that keeps one core busy."""
    code = f"import os\nos.sched_setaffinity(0, [{core}])\nwhile True: pass"
    child = subprocess.Popen([sys.executable, "-c", code])
    try:
        yield
    finally:
        child.kill()
        child.wait()


def ours(cores: int, seconds: float) -> float:
    """Our steps per second."""
    members = [({}, seed) for seed in range(MEMBERS)]
    given = {"environment": ENVIRONMENT, "members": members, "threads": cores, "seconds": seconds}
    return float(measure("ours", given, threads=cores, cores=cores)["rate"])


def independent(cores: int, seconds: float) -> float:
    """Steps per second of one process a core that does nothing but step and waits for nobody."""
    given = [{"environment": ENVIRONMENT, "rows": ROWS, "threads": 1, "seconds": seconds}] * cores
    return float(sum(result["rate"] for result in measure_together("bare", given, threads=1, cores=cores)))


def peer(cores: int, seconds: float, threads: int | None) -> float:
    """The peer's steps per second."""
    given: dict[str, Any] = {
        "environment": ENVIRONMENT,
        "setting": "preset",
        "num_envs": 1,
        "seed": 0,
        "seconds": seconds,
    }
    return float(measure("peer", given, threads=threads, cores=cores)["rate"])


def main() -> int:
    """Measures and prints the object."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cores", type=int, default=min(2, available()))
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=15.0, help="steady seconds in a measurement")
    given = parser.parse_args()
    measured = {
        "ours": lambda: ours(given.cores, given.seconds),
        "peer": lambda: peer(given.cores, given.seconds, None),
        "peer_one_thread": lambda: peer(given.cores, given.seconds, 1),
        "independent": lambda: independent(given.cores, given.seconds),
    }
    slowdowns: dict[str, list[float]] = {name: [] for name in measured}
    rates: dict[str, list[tuple[float, float]]] = {name: [] for name in measured}
    for _ in range(given.repeats):
        for name, run in measured.items():
            alone = run()
            with neighbour(processors(1)[0]):
                beside = run()
            slowdowns[name].append(alone / beside)
            rates[name].append((alone, beside))
    medians = {name: statistics.median(values) for name, values in slowdowns.items()}
    limit, arithmetic = medians["independent"], given.cores / (given.cores - 0.5)
    lines = [
        f"{name}: {statistics.median(a for a, _ in pairs):,.0f} steps/s alone, "
        f"{statistics.median(b for _, b in pairs):,.0f} beside a busy process"
        for name, pairs in rates.items()
    ]
    report = {
        "name": "neighbour",
        "unit": "times slower",
        "ours": round(medians["ours"], 2),
        "peer": round(medians["peer"], 2),
        "ratio": round(medians["peer"] / medians["ours"], 2),
        "limit": round(limit, 2),
        "share_of_limit": round(limit / medians["ours"], 3),
        "repeats": given.repeats,
        "spread": {name: [round(min(v), 2), round(max(v), 2)] for name, v in slowdowns.items()},
        "cores": given.cores,
        "versions": versions(),
        "notes": f"{MEMBERS} members on {ENVIRONMENT}, one core kept busy. " + "; ".join(lines) + ". A fair share is "
        f"{arithmetic:.2f} by arithmetic; the limit is that of independent processes that only step, as measured.",
    }
    print(json.dumps(report))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
