"""Replays recorded cases of another implementation from their stored initial states and lists the differences.

A file has one JSON object a line, by ``kind``: ``meta``, ``init`` (an initial state), ``case`` (an episode), ``agg`` (the
returns of a program in all stored states of a task) and ``schedule`` (neighbours by evaluated programs).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any

from dressage.errors import InvalidArgument
from dressage.programs.engine.playing import Episode
from dressage.programs.engine.worlds import Worlds
from dressage.programs.karel.machine import play as karel_play
from dressage.programs.karel.rules import MARKERS
from dressage.programs.minigrid.machine import play as minigrid_play
from dressage.programs.minigrid.tasks import TASKS
from dressage.programs.search.settings import Schedule
from dressage.programs.stored_states import StoredStates
from dressage.programs.syntax import KAREL, MINIGRID, parse

_LETTERS = "mlrpu"
_SHOWN_HASH = 16


@dataclass(frozen=True)
class Difference:
    """A field that differs."""

    task: str
    seed: int | None
    program: str
    field: str
    expected: object
    got: object


@dataclass
class Replay:
    """Outcome of a replay."""

    cases: int = 0
    """Records compared."""
    differences: list[Difference] = field(default_factory=list)

    def compare(self, record: dict[str, Any], got: dict[str, object], expected: dict[str, Any]) -> None:
        """Count a record and add the fields of ``got`` that differ from ``expected``."""
        self.cases += 1
        for name, value in got.items():
            if name in expected and expected[name] != value:
                self.add(record, record.get("seed"), name, expected[name], value)

    def add(self, record: dict[str, Any], seed: int | None, name: str, expected: object, got: object) -> None:
        """Add a field that differs."""
        self.differences.append(
            Difference(record.get("task", ""), seed, record.get("program", ""), name, expected, got)
        )


def replay(lines: Iterable[str]) -> Replay:
    """Replay a file of Karel or Minigrid cases.

    :raises InvalidArgument: for a line that is not JSON, a record with a missing or malformed field, a case without its
        initial state, or a bad program; the message begins with the number of the line.
    """
    result, states = Replay(), StoredStates()
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
            kind = record["kind"]
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise InvalidArgument(
                field=f"line {number}", problem="not a record", value=line, expected="a JSON object with `kind`"
            ) from error
        try:
            _replay_record(kind, record, states, result)
        except InvalidArgument as error:
            raise InvalidArgument(f"line {number}: {error.message}", field=f"line {number}") from error
        except KeyError as error:
            raise InvalidArgument(
                field=f"line {number}",
                problem=f"no field {error.args[0]!r}",
                expected=f"the fields of {kind!r} records",
            ) from error
        except (ValueError, TypeError, IndexError, AttributeError) as error:
            problem = f"a malformed {kind!r} record: {error}"
            raise InvalidArgument(field=f"line {number}", problem=problem, expected="the fields of its kind") from error
    return result


def _replay_record(kind: str, record: dict[str, Any], states: StoredStates, result: Replay) -> None:
    if kind == "init":
        states.add(record)
    elif kind == "case":
        (episode,) = _play(record, states.one(record["task"], record["seed"]))
        expected = {**record, **record.get("exact", {})} if record.get("hash_collision") else record
        result.compare(record, _case_fields(episode, expected), expected)
    elif kind == "agg":
        _replay_all(record, states, result)
    elif kind == "schedule":
        schedule = Schedule(record["start_k"], record["end_k"], record["max_program_nums"])
        result.compare(record, {"k": [schedule.neighbours(n) for n in record["n"]]}, record)


def _play(record: dict[str, Any], worlds: Worlds) -> list[Episode]:
    if record["task"] in TASKS:
        return minigrid_play(parse(record["program"], MINIGRID), worlds)
    return karel_play(parse(record["program"], KAREL), worlds)


def _replay_all(record: dict[str, Any], states: StoredStates, result: Replay) -> None:
    """Compare the episodes of a program in all states: a difference for each state, and the means."""
    seeds, worlds = states.all(record["task"])
    episodes = _play(record, worlds)
    expected = {**record, "rewards": record.get("exact_rewards", record["rewards"])}
    result.cases += 1
    got: dict[str, list[Any]] = {
        "rewards": [episode.reward for episode in episodes],
        "calls": [episode.calls for episode in episodes],
        "steps": [episode.steps for episode in episodes],
    }
    for name, values in got.items():
        for seed, value, right in zip_longest(seeds, values, expected.get(name, values), fillvalue=None):
            if value != right:
                result.add(record, seed, name, right, value)
    if "exact_rewards" not in record:
        for name, mean in _means(got["rewards"]).items():
            if name in record and record[name] != mean:
                result.add(record, None, name, record[name], mean)


def _means(returns: list[float]) -> dict[str, object]:
    """Means as the reference adds them up: one return after another."""
    means: dict[str, object] = {}
    for count in (16, 32):
        total = 0.0
        for value in returns[:count]:
            total += value
        means[f"mean{count}"] = total / count
    return means


def _case_fields(episode: Episode, expected: dict[str, Any]) -> dict[str, object]:
    letters = "".join(_LETTERS[action] for action in episode.actions)
    rewards = [[step + 1, float(reward)] for step, reward in enumerate(episode.rewards) if reward != 0]
    return {
        "reward": episode.reward,
        "steps": episode.steps,
        "calls": episode.calls,
        "terminated": episode.terminated,
        "crashed": episode.crashed,
        "hero": list(episode.agent),
        "markers": int((episode.cells & MARKERS).sum()),
        "grid": hashlib.sha256((episode.cells & MARKERS).tobytes()).hexdigest()[:_SHOWN_HASH],
        "actions": letters[: max(len(expected["actions"]), min(episode.steps, 1))],
        "actions_sha": hashlib.sha256(letters.encode()).hexdigest()[:_SHOWN_HASH],
        "rewards": rewards,
    }
