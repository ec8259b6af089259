from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np
import pytest
from dressage.errors import InvalidArgument
from dressage.programs.karel import tasks
from dressage.programs.karel.layouts import layout
from dressage.programs.replay import replay
from dressage.programs.stored_states import stored_layout

FILE = Path(__file__).parents[2] / "data" / "programs" / "karel.jsonl.gz"


@pytest.fixture(scope="module")
def lines() -> list[str]:
    with gzip.open(FILE, "rt") as file:
        return list(file)


def test_every_recorded_case_replays_without_difference(lines: list[str]) -> None:
    result = replay(lines)
    assert result.differences == []
    assert result.cases == 2460 + 61 + 1


def test_a_wrong_record_is_reported_with_its_field(lines: list[str]) -> None:
    records = [json.loads(line) for line in lines]
    case = next(record for record in records if record["kind"] == "case")
    state = next(r for r in records if r["kind"] == "init" and (r["task"], r["seed"]) == (case["task"], case["seed"]))
    wrong = {**case, "calls": case["calls"] + 1}
    (difference,) = replay([json.dumps(state), json.dumps(wrong)]).differences
    assert (difference.field, difference.expected, difference.got) == ("calls", case["calls"] + 1, case["calls"])


def test_fields_of_exact_states_replace_those_of_a_hash_collision(lines: list[str]) -> None:
    records = [json.loads(line) for line in lines]
    case = next(record for record in records if record["kind"] == "case")
    state = next(r for r in records if r["kind"] == "init" and (r["task"], r["seed"]) == (case["task"], case["seed"]))
    exact = {"reward": case["reward"], "calls": case["calls"]}
    collision = {**case, "calls": 1, "reward": 9.0, "hash_collision": True, "exact": exact}
    assert replay([json.dumps(state), json.dumps(collision)]).differences == []


def test_generated_initial_states_equal_the_stored_ones(lines: list[str]) -> None:
    states = [record for record in map(json.loads, lines) if record["kind"] == "init"]
    assert len(states) == 18 * 32
    for record in states:
        stored, generated = stored_layout(record), layout(tasks.task_class(record["task"]), record["seed"])
        label = f"{record['task']} {record['seed']}"
        assert np.array_equal(stored.walls, generated.walls) and np.array_equal(stored.markers, generated.markers), (
            label
        )
        assert (stored.agent, stored.heading) == (generated.agent, generated.heading), label
        assert stored.food == generated.food[: len(stored.food)], label
        if record["task"] != "PathFollow":  # its record lists no cells outside the border
            assert stored.special == generated.special, label


def test_a_case_without_initial_state_is_refused(lines: list[str]) -> None:
    case = next(line for line in lines if '"kind":"case"' in line.replace(" ", ""))
    with pytest.raises(InvalidArgument, match="no initial state"):
        replay([case])
    with pytest.raises(InvalidArgument, match="line 1"):
        replay(["{"])
