"""How much a training slows down when another process keeps one core busy; ours, and SB3's PPO.

The neighbour is a loop on the first core. Beside it a training has a right to the other cores, as processors are divided
between groups of processes: two pods that request the same have a core each of two. So many of the processors that it
uses alone are its fair share, and ``fair_share`` has the slowdown that they come to. Counted by threads it could have
half of the neighbour's core besides, (C - 1/2) / C of its speed on C cores by arithmetic. What of that can be had here
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
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
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


@dataclass(frozen=True)
class Speed:
    """Steps per second, and how many processors they took where that is known."""

    rate: float
    processors: float | None = None


def ours(cores: int, seconds: float) -> Speed:
    """Our training."""
    members = [({}, seed) for seed in range(MEMBERS)]
    given = {"environment": ENVIRONMENT, "members": members, "threads": cores, "seconds": seconds}
    result = measure("ours", given, threads=cores, cores=cores)
    return Speed(float(result["rate"]), float(result["processors"]))


def independent(cores: int, seconds: float) -> Speed:
    """One process a core that does nothing but step and waits for nobody."""
    given = [{"environment": ENVIRONMENT, "rows": ROWS, "threads": 1, "seconds": seconds}] * cores
    return Speed(sum(result["rate"] for result in measure_together("bare", given, threads=1, cores=cores)))


def peer(cores: int, seconds: float, threads: int | None) -> Speed:
    """The peer's training."""
    given: dict[str, Any] = {
        "environment": ENVIRONMENT,
        "setting": "preset",
        "num_envs": 1,
        "seed": 0,
        "seconds": seconds,
    }
    return Speed(float(measure("peer", given, threads=threads, cores=cores)["rate"]))


def fair_share(pairs: Sequence[tuple[Speed, Speed]], cores: int) -> dict[str, float]:
    """What the training has a right to beside the neighbour, and what it had, in processors; the slowdown of the former."""
    right = max(cores - 1.0, cores / 2)
    alone, beside = (statistics.median(pair[i].processors or 0.0 for pair in pairs) for i in range(2))
    return {
        "processors": right,
        "processors_alone": round(alone, 2),
        "processors_beside": round(beside, 2),
        "slowdown": round(max(alone / right, 1.0), 2),
    }


def median_rate(speeds: Iterable[Speed]) -> float:
    """Of some measurements' steps per second."""
    return statistics.median(speed.rate for speed in speeds)


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
    seen: dict[str, list[tuple[Speed, Speed]]] = {name: [] for name in measured}
    for _ in range(given.repeats):
        for name, run in measured.items():
            alone = run()
            with neighbour(processors(1)[0]):
                seen[name].append((alone, run()))
    slowdowns = {name: [alone.rate / beside.rate for alone, beside in pairs] for name, pairs in seen.items()}
    medians = {name: statistics.median(values) for name, values in slowdowns.items()}
    limit, by_threads = medians["independent"], given.cores / (given.cores - 0.5)
    share = fair_share(seen["ours"], given.cores)
    lines = [
        f"{name}: {median_rate(a for a, _ in pairs):,.0f} steps/s alone, "
        f"{median_rate(b for _, b in pairs):,.0f} beside a busy process"
        for name, pairs in seen.items()
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
        "fair_share": share,
        "notes": f"{MEMBERS} members on {ENVIRONMENT}, one core kept busy. " + "; ".join(lines) + ". Ours takes "
        f"{share['processors_alone']} processors alone and {share['processors_beside']} beside it, where its fair share is "
        f"{share['processors']}: a slowdown of {share['slowdown']}. Half of the neighbour's core besides would be "
        f"{by_threads:.2f} by arithmetic; the limit is what independent processes that only step have of that, as measured.",
    }
    print(json.dumps(report))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
