"""How much a training slows down when another process keeps one core busy; ours, and SB3's PPO.

The neighbour is a loop on the first core. One core is its, so the other cores are the training's fair share, as they are
between groups of processes (of two pods that request the same, on two cores, each has one). ``fair_share`` is the slowdown
of the same training when it has them and nothing else, no neighbour either. Counted by threads it could have half of the
neighbour's core besides, (C - 1/2) / C of its speed on C cores by arithmetic. What of that can be had here is measured:
``limit`` is the slowdown of one bare simulation a core, processes of their own that never wait for each other. The peer
is SB3 PPO as Prompt2Policy runs it, with the libraries' own thread counts, as it is there; the notes give it with one
thread too. ``ratio`` is how many times the peer's slowdown is ours.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from collections.abc import Iterator, Sequence
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
    """Measure one process a core that only steps and waits for no other process."""
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


def line(name: str, pairs: Sequence[tuple[Speed, Speed]]) -> str:
    """The medians alone and with the neighbour, in words."""
    rates = [statistics.median(pair[i].rate for pair in pairs) for i in range(2)]
    taken = [statistics.median(pair[i].processors or 0.0 for pair in pairs) for i in range(2)]
    text = f"{name}: {rates[0]:,.0f} steps/s alone, {rates[1]:,.0f} with a busy process"
    return f"{text} (on {taken[0]:.2f} and {taken[1]:.2f} processors)" if taken[0] else text


def main() -> int:
    """Measures and prints the object."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cores", type=int, default=min(2, available()), help="at least two")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=15.0, help="steady seconds in a measurement")
    given = parser.parse_args()
    measured = {
        "ours": lambda: ours(given.cores, given.seconds),
        "peer": lambda: peer(given.cores, given.seconds, None),
        "peer_one_thread": lambda: peer(given.cores, given.seconds, 1),
        "independent": lambda: independent(given.cores, given.seconds),
    }
    if given.cores < 2:
        parser.error("a core besides the neighbour's is needed")
    seen: dict[str, list[tuple[Speed, Speed]]] = {name: [] for name in measured}
    others = []
    for _ in range(given.repeats):
        others.append(ours(given.cores - 1, given.seconds).rate)
        for name, run in measured.items():
            alone = run()
            with neighbour(processors(1)[0]):
                seen[name].append((alone, run()))
    slowdowns = {name: [alone.rate / shared.rate for alone, shared in pairs] for name, pairs in seen.items()}
    medians = {name: statistics.median(values) for name, values in slowdowns.items()}
    limit, by_threads = medians["independent"], given.cores / (given.cores - 0.5)
    slowdowns["fair_share"] = [alone.rate / rate for (alone, _), rate in zip(seen["ours"], others, strict=True)]
    fair = statistics.median(slowdowns["fair_share"])
    notes = [
        f"{MEMBERS} members on {ENVIRONMENT}, one core kept busy",
        "; ".join(line(name, pairs) for name, pairs in seen.items()),
        f"Ours without a neighbour, on one core less: {statistics.median(others):,.0f} steps/s, so that its fair share is a "
        f"slowdown of {fair:.2f}",
        f"Half of the neighbour's core besides would make it {by_threads:.2f} by arithmetic; the limit is what independent "
        "processes that only step have of that, as measured.",
    ]
    report = {
        "name": "neighbour",
        "what": "Slowdown of a training by a process that keeps one of its cores busy; peer: SB3 PPO",
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
        "fair_share": round(fair, 2),
        "notes": ". ".join(notes),
    }
    print(json.dumps(report))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
