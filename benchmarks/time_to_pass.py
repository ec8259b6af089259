"""Wall-clock time until a policy passes its judge: ours against Stable-Baselines3 with rl-baselines3-zoo's hyperparameters.

Both sides train on the same reward and are judged by the same judge, those of the template author for the intent. Ours: all
seeds in one process until the mean of their scores passes; once with the default algorithm, once with SAC, for at most the
time in which the default passed. The peer's PPO and SAC: one process of one thread a seed, one environment, until that
policy passes; as many trainings of the peer run at the same time as there are cores. The median over seeds counts, although
the peer would need its seeds one after another. The clock includes imports and compilation and stands still while policies
are judged.

The peer's seconds are ``measured`` where it passes, or does its published number of steps, within ``--limit-seconds``.
Otherwise they are ``derived``: the published number of steps by its speed in this run. That is the time of a whole published
training, which may pass sooner, or not at all; the time that it took without passing is ``at_least``. Parts that ended
are stored in ``--state``, and the same command continues.

``ours`` and ``peer`` are seconds on the first environment, of the faster algorithm of each side; ``environments`` has all.
`tools/bench.py` runs this benchmark only by name: it takes hours.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from support.children import available, measure, versions
from support.passing import PASS_SCORE
from support.passing_peer import SAC, SOURCE, STEPS

INTENTS = {
    "HalfCheetah-v5": "run forward fast",
    "Walker2d-v5": "walk forward",
    "Ant-v5": "walk forward",
    "Humanoid-v5": "walk forward",
}
GOAL = 10.0
WHAT = "Time to a policy that passes its judge"
EVERY = 25_000
OURS_STEPS = 20_000_000
"""Never reached: the limit of seconds ends ours. Replay buffers have the size of their preset."""
STATE = Path(__file__).parent / "recorded" / "time_to_pass.jsonl"
Part = dict[str, Any]


class State:
    """The parts that ended, one JSON line each; a part is found by its task without the limit."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._parts: dict[str, Part] = {}
        self._writing = threading.Lock()
        lines = path.read_text("utf-8").splitlines() if path.is_file() else []
        for line in lines:
            try:
                part = json.loads(line)
            except json.JSONDecodeError:  # a kill cut it off
                continue
            self._parts[part["key"]] = part

    def run(self, module: str, task: dict[str, Any], *, threads: int, cores: int) -> Part:
        """Return the result of a task, from the file where it passed, ended, or had at least this time."""
        limit = task["limit_seconds"]
        identity = {"module": module, "cores": cores, "versions": versions(), **task}
        key = json.dumps({name: value for name, value in identity.items() if name != "limit_seconds"}, sort_keys=True)
        known = self._parts.get(key)
        if known and (known["passed"] or known["steps"] >= task["max_steps"] or known["limit_seconds"] >= limit):
            return known
        result = measure(module, task, threads=threads, cores=cores, timeout=2 * limit + 3600)
        part = {**result, "key": key, "limit_seconds": limit}
        print(
            f"{module} {task['environment']} {task['algorithm']}: {result['score']} after {result['seconds']} s",
            file=sys.stderr,
        )
        with self._writing:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with self._path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(part) + "\n")
            self._parts[key] = part
        return part


def ours(environment: str, algorithm: str, state: State, given: argparse.Namespace, sooner: Part | None = None) -> Part:
    """Our time with an algorithm.

    :param sooner: another of our algorithms; where it passed, this one ends after the same time.
    """
    limit = given.limit_seconds
    if sooner and sooner["passed"]:
        limit = min(limit, sooner["seconds"])
    task = _task(environment, algorithm, given) | {
        "limit_seconds": limit,
        "seeds": list(range(given.seeds)),
        "threads": given.cores,
        "max_steps": OURS_STEPS,
    }
    part = state.run("passing", task, threads=given.cores, cores=given.cores)
    return {"passed": part["passed"], "seconds": part["seconds"], "steps": part["steps"], "score": part["score"]}


def peer(environment: str, algorithm: str, state: State, given: argparse.Namespace) -> Part:
    """The peer's time with an algorithm: median over seeds; one that did not pass within the limit stands for all."""
    published = STEPS[algorithm][environment]
    parts = []
    for seed in range(given.seeds):
        task = _task(environment, algorithm, given) | {"seed": seed, "max_steps": published}
        parts.append(state.run("passing_peer", task, threads=1, cores=given.cores))
        if not parts[-1]["passed"]:
            break
    last = parts[-1]
    shared = {"seeds": len(parts), "published_steps": published, "rate": last["rate"], "score": last["score"]}
    if last["passed"]:
        seconds = statistics.median(part["seconds"] for part in parts)
        return {"passed": True, "kind": "measured", "seconds": seconds, "at_least": seconds, **shared}
    if last["steps"] >= published:
        return {
            "passed": False,
            "kind": "measured, not passed",
            "seconds": last["seconds"],
            "at_least": last["seconds"],
            **shared,
        }
    seconds = round(published / last["rate"], 1)
    return {"passed": False, "kind": "derived", "seconds": seconds, "at_least": last["seconds"], **shared}


def _task(environment: str, algorithm: str, given: argparse.Namespace) -> dict[str, Any]:
    return {
        "environment": environment,
        "intent": INTENTS[environment],
        "algorithm": algorithm,
        "every": EVERY,
        "random_steps": SAC["learning_starts"] if algorithm == "sac" else 0,  # the presets have as many
        "limit_seconds": given.limit_seconds,
    }


def measure_both(state: State, given: argparse.Namespace) -> dict[str, dict[str, Any]]:
    """Both sides on each environment: ours by itself on all cores, then the peer's trainings, one to a core."""
    mine: dict[str, dict[str, Part]] = {}
    for environment in given.environments:
        default = ours(environment, "ppo", state, given)
        mine[environment] = {"default": default, "sac": ours(environment, "sac", state, given, sooner=default)}
    with ThreadPoolExecutor(given.cores) as pool:
        theirs = {
            environment: {algorithm: pool.submit(peer, environment, algorithm, state, given) for algorithm in STEPS}
            for environment in given.environments
        }
    return {
        environment: compare(environment, mine[environment], {name: run.result() for name, run in runs.items()})
        for environment, runs in theirs.items()
    }


def compare(environment: str, mine: dict[str, Part], theirs: dict[str, Part]) -> dict[str, Any]:
    """Both sides on an environment, each with its faster algorithm."""
    best = min(mine.values(), key=lambda part: (not part["passed"], part["seconds"]))
    # Of two peers the one that certainly passed first, else the one that might have passed first.
    rival = min(theirs.values(), key=lambda part: (not part["passed"], part["seconds"]))
    ratio = round(rival["seconds"] / best["seconds"], 1) if best["passed"] else None
    least = min(part["at_least"] for part in theirs.values())
    return {
        "intent": INTENTS[environment],
        "ours": mine,
        "peer": theirs,
        "ours_seconds": best["seconds"],
        "passed": best["passed"],
        "peer_seconds": rival["seconds"],
        "peer_kind": rival["kind"],
        "ratio": ratio,
        "ratio_at_least": round(least / best["seconds"], 1) if best["passed"] else None,
        "goal": GOAL,
    }


def note(environment: str, row: dict[str, Any]) -> str:
    """One line on an environment."""
    if not row["passed"]:
        return f"{environment}: ours did not pass within the limit"
    times = f"ours after {row['ours_seconds']:.0f} s, the peer after {row['peer_seconds']:.0f} s ({row['peer_kind']})"
    return f"{environment}, {row['intent']!r}: {times}, a ratio of {row['ratio']}, at least {row['ratio_at_least']}"


def table_row(environment: str, row: dict[str, Any]) -> dict[str, Any]:
    """The row of the table for an environment."""
    what = f"{WHAT}, {row['intent']!r} on {environment}, peer {row['peer_kind']}"
    figures = {"ours": round(row["ours_seconds"], 1), "peer": round(row["peer_seconds"]), "ratio": row["ratio"]}
    return {"what": what, "unit": "seconds", **figures, "share_of_limit": None}


def main() -> int:
    """Measure and print the object."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--environments", nargs="+", choices=INTENTS, default=list(INTENTS), metavar="ID")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument(
        "--limit-seconds", type=float, default=3600.0, help="longest time of a training from its first gradient step"
    )
    parser.add_argument("--cores", type=int, default=min(2, available()))
    parser.add_argument("--state", type=Path, default=STATE, help="file of the parts that ended")
    given = parser.parse_args()
    if given.seeds < 1 or given.limit_seconds <= 0:
        parser.error("--seeds: expected at least 1; --limit-seconds: expected more than 0")
    state = State(given.state)
    measured = measure_both(state, given)
    first = measured[given.environments[0]]
    report = {
        "name": "time_to_pass",
        "what": f"{WHAT}, {given.environments[0]}",
        "unit": "seconds",
        "ours": first["ours_seconds"],
        "peer": first["peer_seconds"],
        "ratio": first["ratio"],
        "limit": None,
        "share_of_limit": None,
        "repeats": 1,
        "spread": {},
        "cores": given.cores,
        "versions": versions(),
        "hyperparameters_of_peer": SOURCE,
        "pass_score": PASS_SCORE,
        "limit_seconds": given.limit_seconds,
        "environments": measured,
        "rows": [table_row(name, row) for name, row in measured.items()],
        "notes": f"{given.seeds} seeds. " + ". ".join(note(name, row) for name, row in measured.items()) + ".",
    }
    print(json.dumps(report))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
