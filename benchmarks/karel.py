"""Karel programs per second, compared with LLM-GS's algorithm restated in plain Python.

- ``engine``: 250 neighbours of a solver (StairClimber) and of a partial solver (DoorKey), 32 variations each, every episode
  played. All sides score the same programs; their returns must be equal.
- ``search``: scheduled hill climbing from random programs: drawing, cache and early ends included on our side, what the
  reference does on the other. Both evaluate the number of programs that they reach in the time given; ours continues after
  a solution is found, so that the rate is that of the whole budget.

``peer`` keeps the reference's costs, ``lean`` leaves them out (see `support.karel_peer`). Rates are programs per second of CPU
time, ours on one thread; the sides are measured in turn and the ratio is the median over the rounds, that of the
engine on the programs that all sides score. Compilation is left
out. Prints one JSON object; ``mean_returns`` are those of ten sets of 250 neighbours with their standard deviation, to
compare with the reference's -0.3256 (0.043) and -0.0244 (0.037).
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from importlib import metadata
from typing import Any

import numpy as np
from dressage.programs.engine.grammar import KAREL_GRAMMAR
from dressage.programs.engine.trees import flatten
from dressage.programs.karel.machine import KarelScorer
from dressage.programs.karel.tasks import class_of
from dressage.programs.karel.worlds import Worlds
from dressage.programs.search.climbing import Search
from dressage.programs.search.draws import neighbours
from dressage.programs.search.parallel import Scorers
from dressage.programs.search.settings import SearchSettings
from dressage.programs.syntax import KAREL, Program, parse
from support.karel_peer import Peer
from support.karel_peer_search import climb_for

PARENTS = {
    "StairClimber": "DEF run m( WHILE c( noMarkersPresent c) w( turnLeft move turnRight move w) m)",
    "DoorKey": "DEF run m( WHILE c( noMarkersPresent c) w( turnRight move move w) pickMarker"
    " WHILE c( noMarkersPresent c) w( move move turnLeft w) putMarker m)",
}
NEIGHBOURS, SETS = 250, 10
WHAT = {
    "engine": "Karel programs, 32 variations; peer: LLM-GS's algorithm restated in Python",
    "search": "Programs of a scheduled hill climb; peer: LLM-GS's algorithm restated in Python",
}
PEER_PROGRAMS = 25
"""Programs of the set that the plain Python sides score in a round, evenly spread."""


def engine(task: str, rounds: int) -> dict[str, Any]:
    """Measure the engines on the same programs."""
    parent = parse(PARENTS[task], KAREL)
    scorer = KarelScorer(Worlds.of(class_of(task), range(32)))
    drawn = [neighbours(parent, KAREL_GRAMMAR, seed, NEIGHBOURS) for seed in range(SETS)]
    flat = [[flatten(program, KAREL) for program in programs] for programs in drawn]
    means = [float(scorer.score_all(programs)[0].mean()) for programs in flat]
    peer = Peer(task)
    chosen = drawn[0][:: NEIGHBOURS // PEER_PROGRAMS]
    expected = scorer.score_all([flatten(program, KAREL) for program in chosen])[0].tolist()
    ours, same, costly, lean = [], [], [], []
    all_of_them, the_same = flat[0] * 20, _flat(chosen) * 200
    for _ in range(rounds):
        ours.append(_rate(lambda: scorer.score_all(all_of_them), len(all_of_them)))
        same.append(_rate(lambda: scorer.score_all(the_same), len(the_same)))
        costly.append(_rate(lambda: _check([peer.costly_score(p) for p in chosen], expected), len(chosen)))
        lean.append(_rate(lambda: _check([peer.lean_score(p) for p in chosen], expected), len(chosen)))
    return {
        "ours": statistics.median(ours),
        "peer": statistics.median(costly),
        "lean": statistics.median(lean),
        "ratio": statistics.median(a / b for a, b in zip(same, costly, strict=True)),
        "lean_ratio": statistics.median(a / b for a, b in zip(same, lean, strict=True)),
        "mean_returns": [statistics.mean(means), statistics.stdev(means)],
    }


def _flat(programs: list[Program]) -> list[Any]:
    return [flatten(program, KAREL) for program in programs]


def _check(got: list[float], expected: list[float]) -> None:
    if not np.allclose(got, expected, rtol=0, atol=1e-12):
        raise SystemExit("the sides disagree on returns")


def _rate(work: Any, count: int) -> float:
    began = time.process_time()
    work()
    return count / (time.process_time() - began)


def search(task: str, programs: int, seconds: float, rounds: int) -> dict[str, Any]:
    """Measure whole scheduled hill climbs."""
    worlds = Worlds.of(class_of(task), range(32))
    peer, ours, costly, lean, hits = Peer(task), [], [], [], []
    for seed in range(rounds):
        with Scorers(lambda: KarelScorer(worlds)) as scorers:
            run = Search(scorers, SearchSettings(budget=programs, seed=seed, target=2.0))
            ours.append(_rate(run.run, programs))
            hits.append(float(scorers.counts[1] / scorers.counts[0]))
        for rates, is_lean in ((costly, False), (lean, True)):
            evaluated, spent = climb_for(peer, seconds, seed, lean=is_lean)
            rates.append(evaluated / spent)
    return {
        "ours": statistics.median(ours),
        "peer": statistics.median(costly),
        "lean": statistics.median(lean),
        "ratio": statistics.median(a / b for a, b in zip(ours, costly, strict=True)),
        "lean_ratio": statistics.median(a / b for a, b in zip(ours, lean, strict=True)),
        "cache_hits": statistics.median(hits),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--programs", type=int, default=1_000_000, help="programs of a search on our side")
    parser.add_argument("--seconds", type=float, default=20, help="CPU seconds of a search on each other side")
    options = parser.parse_args()
    search("StairClimber", 1_000, 0.1, 1)  # compile
    result: dict[str, Any] = {"engine": {}, "search": {}}
    for task in PARENTS:
        result["engine"][task] = engine(task, options.rounds)
        result["search"][task] = search(task, options.programs, options.seconds, options.rounds)
    for part in ("engine", "search"):
        slowest = min(PARENTS, key=lambda task: result[part][task]["ratio"])
        result[part] |= {name: result[part][slowest][name] for name in ("ours", "peer", "ratio")}
        result[part] |= {"what": WHAT[part], "unit": "programs/s", "share_of_limit": None}
    result = {"name": "karel", **result["engine"], "rows": [result["engine"], result["search"]], **result}
    result["limit"], result["repeats"] = None, options.rounds
    result["spread"] = {part: {task: result[part][task]["ratio"] for task in PARENTS} for part in ("engine", "search")}
    result["notes"] = (
        "by processor time; the smaller ratio of StairClimber and DoorKey; lean_ratio: a lean Python interpreter"
    )
    result["cores"], result["load"] = os.cpu_count(), os.getloadavg()[0]
    result["versions"] = {name: metadata.version(name) for name in ("dressage", "numba", "numpy")}
    print(json.dumps(result))


if __name__ == "__main__":
    main()
