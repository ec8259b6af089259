"""Compare variants of an environment's preset: which reaches a good return fastest?

Every variant (changes to the environment's preset) trains some seeds in one process on a reward like the stock one;
after every so many steps the deterministic policies play stock episodes. Prints, for each variant and point in time,
the mean return, the worst and best seed's, and the seconds that this variant's trainings have taken by then: a wide
batch can need more steps and still be faster.

    python tools/preset_sweep.py --env Walker2d-v5 --variant wide='{"num_envs": 64, "num_steps": 32}'
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "benchmarks"))


def train(
    environment: str, variants: dict[str, dict[str, Any]], *, seeds: int, steps: int, every: int, threads: int
) -> None:
    """Trains all variants, the least trained first, and prints a line of JSON for each point in time of each."""
    from support.ours import build

    given = {"environment": environment, "threads": threads}
    with tempfile.TemporaryDirectory() as folder:
        groups = {
            name: build({**given, "members": [(changes, seed) for seed in range(seeds)]}, Path(folder) / name)
            for name, changes in variants.items()
        }
        seconds, due = dict.fromkeys(variants, 0.0), dict.fromkeys(variants, every)
        while pending := [name for name in variants if groups[name][0].steps < steps]:
            name = min(pending, key=lambda n: groups[n][0].steps)
            group = groups[name][0]
            began = time.perf_counter()
            group.advance(began=began)
            seconds[name] += time.perf_counter() - began
            if group.steps >= due[name]:
                due[name] += every
                report(name, group, environment, seconds[name])


def report(name: str, group: Any, environment: str, seconds: float) -> None:
    """Prints how good the policies of a group are now, on four stock episodes each."""
    from support.ours import stock_returns

    returns = [float(np.mean(stock_returns(member, environment, 4))) for member in group.policies()]
    row = {"variant": name, "steps": group.steps, "seconds": round(seconds, 1)}
    row |= {"mean": round(float(np.mean(returns)), 1), "returns": [round(value, 1) for value in sorted(returns)]}
    print(json.dumps(row), flush=True)


def main() -> int:
    """Reads the variants and trains them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--env", required=True)
    parser.add_argument("--variant", action="append", default=[], metavar="NAME=JSON", help="changes; repeatable")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=500_000)
    parser.add_argument("--every", type=int, default=100_000)
    parser.add_argument("--threads", type=int, default=2)
    given = parser.parse_args()
    variants = {name: json.loads(changes) for name, changes in (text.split("=", 1) for text in given.variant)}
    options = dict(seeds=given.seeds, steps=given.steps, every=given.every, threads=given.threads)
    train(given.env, {"preset": {}, **variants}, **options)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
