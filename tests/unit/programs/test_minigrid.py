from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dressage.errors import InvalidArgument
from dressage.programs.engine.trees import flatten
from dressage.programs.families import program_task
from dressage.programs.minigrid.layouts import layout
from dressage.programs.minigrid.machine import play
from dressage.programs.minigrid.stepping import HEADINGS, MinigridWorld
from dressage.programs.minigrid.tasks import TASKS
from dressage.programs.minigrid.worlds import Worlds
from dressage.programs.replay import replay
from dressage.programs.search.algorithms import new_search
from dressage.programs.search.draws import random_programs
from dressage.programs.search.parallel import Scorers
from dressage.programs.search.settings import SearchSettings
from dressage.programs.stored_states import minigrid_layout
from dressage.programs.syntax import MINIGRID, parse
from dressage.programs.trace import trace

from tests.reference import minigrid_reference
from tests.reference.interpreter import run
from tests.reference.minigrid_reference import Room
from tests.unit.programs.strategies import program as any_program

FILE = Path(__file__).parents[2] / "data" / "programs" / "minigrid.jsonl.gz"


@pytest.fixture(scope="module")
def lines() -> list[str]:
    with gzip.open(FILE, "rt") as file:
        return list(file)


@pytest.fixture(scope="module")
def states(lines: list[str]) -> list[dict[str, Any]]:
    return [record for record in map(json.loads, lines) if record["kind"] == "init"]


def test_every_recorded_case_replays_without_difference(lines: list[str]) -> None:
    result = replay(lines)
    assert result.differences == []
    assert result.cases == 27


def test_a_wrong_return_is_reported_with_its_seed(lines: list[str]) -> None:
    records = [json.loads(line) for line in lines]
    index = next(i for i, record in enumerate(records) if record["kind"] == "agg")
    records[index]["rewards"][3] += 0.5
    (difference,) = replay(json.dumps(record) for record in records).differences
    assert (difference.task, difference.seed, difference.field) == (records[index]["task"], 3, "rewards")
    assert difference.expected == difference.got + 0.5  # type: ignore[operator]


def test_generated_initial_states_equal_the_stored_ones(states: list[dict[str, Any]]) -> None:
    assert len(states) == 48
    for record in states:
        stored, generated = minigrid_layout(record), layout(TASKS[record["task"]], record["seed"])
        label = f"{record['task']} {record['seed']}"
        assert np.array_equal(stored.grid, generated.grid), label
        assert (stored.agent, stored.heading) == (generated.agent, generated.heading), label


def test_random_programs_play_as_in_the_slow_reference(states: list[dict[str, Any]]) -> None:
    scorers = {name: program_task(f"minigrid/{name}") for name in TASKS}
    drawn = random_programs(scorers["PutNear"].scorer((0,)).grammar, 5, 60)  # type: ignore[attr-defined]
    programs = [*drawn, *(any_program(seed, MINIGRID, largest_count=30) for seed in range(120))]
    for record in states[::5]:
        worlds = Worlds.from_layouts(TASKS[record["task"]], [minigrid_layout(record)])
        for program in programs:
            room = Room.of(record)
            expected = run(program, room, minigrid_reference.task_of(record, room))
            (got,) = play(program, worlds)
            if got.exhausted:
                continue
            assert (got.reward, got.steps, got.calls) == (expected.total, len(expected.actions), expected.calls)
            assert (got.terminated, got.crashed) == (expected.terminated, expected.crashed)
            assert (got.agent[1], got.agent[0], got.agent[2]) == (*room.agent, room.direction)


def test_scores_are_those_of_whole_episodes(states: list[dict[str, Any]]) -> None:
    for name in TASKS:
        task = program_task(f"minigrid/{name}")
        scorer = task.scorer(range(8))
        for program in random_programs(scorer.grammar, 9, 40):  # type: ignore[attr-defined]
            returns = scorer.score(flatten(program, MINIGRID))[1]
            assert returns.tolist() == [episode.reward for episode in task.play(program, range(8))]


def test_a_trace_has_the_steps_and_the_result_of_the_engine() -> None:
    for name in TASKS:
        worlds = Worlds.of(TASKS[name], range(2))
        for seed in range(25):
            program = any_program(seed, MINIGRID, largest_count=20)
            for index, episode in enumerate(play(program, worlds)):
                traced = trace(program, MinigridWorld(worlds, index))
                assert (traced.total, traced.calls, traced.actions) == (episode.reward, episode.calls, episode.steps)
                assert (traced.terminated, traced.crashed) == (episode.terminated, episode.crashed)
                if traced.steps:
                    agent = traced.steps[-1].agent
                    assert (agent.row, agent.column, HEADINGS.index(agent.heading)) == episode.agent


def test_the_call_after_the_limit_is_still_performed() -> None:
    (episode,) = play(parse("DEF run m( REPEAT R=2000 r( left r) m)", MINIGRID), Worlds.of(TASKS["LavaGap"], (0,)))
    assert episode.crashed and episode.steps == episode.calls == 1000 and episode.agent[2] == 0


def test_hill_climbing_solves_lava_gap_from_random_programs() -> None:
    task = program_task("minigrid/LavaGap")
    with Scorers(lambda: task.scorer(task.search_states(32))) as scorers:
        search = new_search(scorers, SearchSettings(budget=300_000, seed=1))
        search.run()
    assert search.solved and search.best is not None
    returns = task.scorer(task.report_states(32)).score(search.best.nodes)[1]
    assert returns.tolist() == [1.0] * 32


def test_states_that_lack_what_the_task_is_about_are_refused(states: list[dict[str, Any]]) -> None:
    record = next(record for record in states if record["task"] == "LavaGap")
    state = minigrid_layout({**record, "task": "PutNear"})
    with pytest.raises(InvalidArgument, match="no box"):
        Worlds.from_layouts(TASKS["PutNear"], [state])
    with pytest.raises(InvalidArgument, match="h, w"):
        minigrid_layout({**record, "task": "RedBlueDoor"})
    with pytest.raises(InvalidArgument, match=r"line 1: .*agent"):
        replay([json.dumps({**record, "agent": [9, 1]})])
