"""Wall-clock time until a policy passes its judge: ours against Stable-Baselines3 with rl-baselines3-zoo's hyperparameters.

Both sides train on the same reward and are judged by the same judge, those of the template author for the intent. The first
figure of an environment is the time to one policy: one training of one seed until its policy passes, the median over seeds,
of which one that does not pass counts as later than those that do.
Ours has all cores; the peer's is one process of one thread with one environment, and as many of the peer's run at the same
time as there are cores. The second figure is the time to one policy of each seed: ours trains all seeds in one process, as
sessions do, until the mean of their scores passes; the peer's trainings take the cores in turn until each has passed.
The clock includes imports and compilation and stands still while policies are judged.

Ours has the default algorithm. A training of one seed has at most the time in which that of all seeds passed, and so has SAC,
which trains all seeds. Of the peer's seeds, the first that does not pass within the limit stands for the rest.

The peer's seconds are ``measured`` where it passes, or does its published number of steps, within ``--limit-seconds``.
Otherwise they are ``derived``: the published number of steps by its speed in this run. That is the time of a whole published
training, which may pass sooner, or not at all; the time that it took without passing is ``at_least``. Parts that ended
are stored in ``--state``, and the same command continues.

``ours`` and ``peer`` are seconds to one policy on the first environment, of the peer's faster algorithm; ``environments``
has all.
`tools/bench.py` runs this benchmark only by name: it takes hours.
"""

from __future__ import annotations

import argparse
import heapq
import json
import statistics
import sys
import threading
from collections.abc import Sequence
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
NEVER = "measured, not passed"
WHAT = "Time to a policy that passes its judge"
WHAT_ALL = "Time to a policy of each of {} seeds"
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


def ours(
    environment: str,
    algorithm: str,
    state: State,
    given: argparse.Namespace,
    *,
    seeds: Sequence[int],
    limit_seconds: float,
) -> Part:
    """Our time with an algorithm, all seeds in one process on all cores."""
    task = _task(environment, algorithm, given) | {
        "limit_seconds": limit_seconds,
        "seeds": list(seeds),
        "threads": given.cores,
        "max_steps": OURS_STEPS,
    }
    part = state.run("passing", task, threads=given.cores, cores=given.cores)
    return {"passed": part["passed"], "seconds": part["seconds"], "steps": part["steps"], "score": part["score"]}


def ours_alone(environment: str, state: State, given: argparse.Namespace, limit_seconds: float) -> Part:
    """Our time to one policy: median over seeds, of which one that does not pass counts as later than all that do."""
    seeds = range(given.seeds)
    parts = [ours(environment, "ppo", state, given, seeds=[seed], limit_seconds=limit_seconds) for seed in seeds]
    ordered = sorted(parts, key=lambda part: (not part["passed"], part["seconds"]))
    middle = ordered[len(ordered) // 2]
    each = [part["seconds"] if part["passed"] else None for part in parts]
    return {"passed": middle["passed"], "seconds": middle["seconds"], "each": each}


def all_ours(environment: str, state: State, given: argparse.Namespace) -> dict[str, Part]:
    """Our time to one policy of each seed with both algorithms, and to one policy in no more time."""
    seeds, limit = range(given.seeds), given.limit_seconds
    default = ours(environment, "ppo", state, given, seeds=seeds, limit_seconds=limit)
    limit = min(limit, default["seconds"]) if default["passed"] else limit
    sac = ours(environment, "sac", state, given, seeds=seeds, limit_seconds=limit)
    return {"one": ours_alone(environment, state, given, limit), "default": default, "sac": sac}


def peer(environment: str, algorithm: str, state: State, given: argparse.Namespace) -> Part:
    """The peer's time with an algorithm: median over seeds, and all of them; one that did not pass stands for the rest."""
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
        each = [part["seconds"] for part in parts]
        seconds = statistics.median(each)
        times = {"seconds": seconds, "at_least": seconds, "all_seconds": in_turn(each, given.cores), "each": each}
        return {"passed": True, "kind": "measured", **times, **shared}
    whole = last["steps"] >= published
    seconds = last["seconds"] if whole else round(published / last["rate"], 1)
    each = [part["seconds"] for part in parts[:-1]] + [seconds] * (given.seeds - len(parts) + 1)
    times = {"seconds": seconds, "at_least": last["seconds"], "all_seconds": in_turn(each, given.cores)}
    return {"passed": False, "kind": NEVER if whole else "derived", **times, **shared}


def in_turn(seconds: Sequence[float], cores: int) -> float:
    """When the last of some trainings ends, each of which takes the first free core, in their order."""
    ends = [0.0] * cores
    for each in seconds:
        heapq.heapreplace(ends, ends[0] + each)
    return round(max(ends), 2)


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
    mine = {environment: all_ours(environment, state, given) for environment in given.environments}
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
    """Both sides on an environment, the peer with its faster algorithm."""
    one = mine["one"]
    stacked = min(mine["default"], mine["sac"], key=lambda part: (not part["passed"], part["seconds"]))
    # Of two peers the one that passed first, else the one that might have: a whole training that did not pass never does.
    able = [part for part in theirs.values() if part["kind"] != NEVER] or list(theirs.values())
    rival = min(able, key=lambda part: (not part["passed"], part["seconds"]))
    least = min(part["at_least"] for part in able)
    return {
        "intent": INTENTS[environment],
        "ours": mine,
        "peer": theirs,
        "ours_seconds": one["seconds"],
        "passed": one["passed"],
        "peer_seconds": rival["seconds"],
        "peer_kind": rival["kind"],
        "ratio": _ratio(rival["seconds"], one),
        "peer_at_least_seconds": least,
        "ratio_at_least": _ratio(least, one),
        "ours_all_seconds": stacked["seconds"],
        "peer_all_seconds": rival["all_seconds"],
        "ratio_all": _ratio(rival["all_seconds"], stacked),
        "goal": GOAL,
    }


def _ratio(theirs: float, mine: Part) -> float | None:
    return round(theirs / mine["seconds"], 1) if mine["passed"] else None


def note(environment: str, row: dict[str, Any]) -> str:
    """One line on an environment."""
    if not row["passed"]:
        return f"{environment}: ours did not pass within the limit"
    times = f"ours after {row['ours_seconds']:.0f} s, the peer after {row['peer_seconds']:.0f} s ({row['peer_kind']})"
    ratios = f"a ratio of {row['ratio']}, at least {row['ratio_at_least']}; for all seeds {row['ratio_all']}"
    return f"{environment}, {row['intent']!r}: {times}, {ratios}"


def table_rows(environment: str, row: dict[str, Any], *, seeds: int) -> list[dict[str, Any]]:
    """The rows of the table for an environment: one policy, and one of each seed."""
    derived = f" (at least {row['peer_at_least_seconds']:,.0f} s)" if row["peer_kind"] == "derived" else ""
    on = f"{row['intent']!r} on {environment}, peer {row['peer_kind']}{derived}"
    shared = {"unit": "seconds", "share_of_limit": None}
    one = {"ours": round(row["ours_seconds"], 1), "peer": round(row["peer_seconds"]), "ratio": row["ratio"]}
    every = {
        "ours": round(row["ours_all_seconds"], 1),
        "peer": round(row["peer_all_seconds"]),
        "ratio": row["ratio_all"],
    }
    return [{"what": f"{WHAT}, {on}", **shared, **one}, {"what": f"{WHAT_ALL.format(seeds)}, {on}", **shared, **every}]


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
        "rows": [line for name, row in measured.items() for line in table_rows(name, row, seeds=given.seeds)],
        "notes": f"{given.seeds} seeds. " + ". ".join(note(name, row) for name, row in measured.items()) + ".",
    }
    print(json.dumps(report))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
