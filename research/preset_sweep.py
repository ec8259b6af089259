"""Compare variants of an environment's preset: which reaches a good return, or a passing score, fastest?

Every variant (changes to the environment's preset) trains some seeds in one process; after every so many steps the
deterministic policies play stock episodes. Prints, for each variant and point in time, the mean return, the worst and best
seed's, and the seconds that this variant's trainings have taken by then: a wide batch can need more steps and still be
faster. With an intent the template author's reward and judge are used, and a variant ends where the mean score passes.

    python research/preset_sweep.py --env Walker2d-v5 --variant wide='{"num_envs": 64, "num_steps": 32}'
    python research/preset_sweep.py --env Ant-v5 --intent "run forward fast" --variant far='{"discount": 0.99}'
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "benchmarks"))

EPISODES = 4


@dataclass(frozen=True)
class Sweep:
    """What every variant trains on.

    :param intent: whose reward and judge are used; empty for a reward like the stock one and no judge.
    :param steps: most environment steps of a seed.
    :param every: environment steps between two evaluations.
    """

    environment: str
    intent: str
    seeds: int
    steps: int
    every: int
    threads: int


def train(sweep: Sweep, variants: dict[str, dict[str, Any]]) -> None:
    """Trains all variants, the least trained first, and prints a line of JSON for each point in time of each."""
    from support.ours import build
    from support.passing import PASS_SCORE, scorer, written

    given: dict[str, Any] = {"environment": sweep.environment, "threads": sweep.threads, "steps": sweep.steps}
    score: Callable[[Any], float] | None = None
    if sweep.intent:
        given["reward"], judge = written(sweep.environment, sweep.intent)
        score = scorer(sweep.environment, judge)
    with tempfile.TemporaryDirectory() as folder:
        groups = {}
        for name, changes in variants.items():
            members = [(changes, seed) for seed in range(sweep.seeds)]
            (groups[name],) = build({**given, "members": members}, Path(folder) / name)
        seconds, due = dict.fromkeys(variants, 0.0), dict.fromkeys(variants, sweep.every)
        while pending := [name for name in groups if groups[name].steps < sweep.steps]:
            name = min(pending, key=lambda n: groups[n].steps)
            group = groups[name]
            began = time.perf_counter()
            group.advance(began=began)
            seconds[name] += time.perf_counter() - began
            if group.steps >= due[name]:
                due[name] += sweep.every
                row = {"variant": name, "steps": group.steps, "seconds": round(seconds[name], 1)}
                row |= evaluation(group, sweep.environment, score)
                print(json.dumps(row), flush=True)
                if row.get("score", 0.0) >= PASS_SCORE:
                    groups.pop(name).close()


def evaluation(group: Any, environment: str, score: Callable[[Any], float] | None) -> dict[str, Any]:
    """Returns and scores of a group's policies now, on some stock episodes each."""
    from dressage.policies import Policy, PolicyCard
    from support.ours import returns_of

    acts = [Policy(weights=m.weights, card=PolicyCard.from_dict(m.card)).act for m in group.policies()]
    returns = [float(np.mean(returns_of(act, environment, EPISODES))) for act in acts]
    row: dict[str, Any] = {"mean": round(float(np.mean(returns)), 1), "returns": [round(v, 1) for v in sorted(returns)]}
    if score is not None:
        scores = sorted(score(act) for act in acts)
        row |= {"score": round(float(np.mean(scores)), 3), "scores": [round(value, 2) for value in scores]}
    return row


def main() -> int:
    """Reads the variants and trains them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--env", required=True)
    parser.add_argument("--intent", default="", help="judge by the scores of this intent, and end where they pass")
    parser.add_argument("--variant", action="append", default=[], metavar="NAME=JSON", help="changes; repeatable")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=500_000)
    parser.add_argument("--every", type=int, default=100_000)
    parser.add_argument("--threads", type=int, default=2)
    given = parser.parse_args()
    variants = {name: json.loads(changes) for name, changes in (text.split("=", 1) for text in given.variant)}
    sweep = Sweep(given.env, given.intent, given.seeds, given.steps, given.every, given.threads)
    train(sweep, {"preset": {}, **variants})
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
