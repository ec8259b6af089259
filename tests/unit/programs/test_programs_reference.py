"""The slow reference interpreter reproduces every stored case of both conformance files."""

from __future__ import annotations

import hashlib
import statistics

import pytest
from dressage.programs.syntax import KAREL, MINIGRID, parse

from tests.reference import karel_tasks, minigrid_reference
from tests.reference.interpreter import Episode, run
from tests.reference.karel_reference import LETTERS, World, grid_hash, rows
from tests.reference.minigrid_reference import Room

ROWS = rows("karel")
INITS = {(row["task"], row["seed"]): row for row in ROWS if row["kind"] == "init"}
TASKS = tuple(dict.fromkeys(task for task, _ in INITS))


def karel(program: str, task: str, seed: int) -> tuple[World, Episode]:
    row = INITS[task, seed]
    world = World.of(row)
    return world, run(parse(program, KAREL), world, karel_tasks.task_of(row, world))


@pytest.mark.parametrize("task", TASKS)
def test_every_karel_case_is_reproduced(task):
    cases = [row for row in ROWS if row["kind"] == "case" and row["task"] == task]
    assert cases
    for case in cases:
        world, episode = karel(case["program"], task, case["seed"])
        actions = "".join(LETTERS[action] for action in episode.actions)
        got = {
            "reward": episode.total,
            "steps": len(actions),
            "calls": episode.calls,
            "terminated": episode.terminated,
            "crashed": episode.crashed,
            "hero": [*world.hero, world.heading],
            "markers": world.total(),
            "grid": grid_hash(world),
            "actions_sha": hashlib.sha256(actions.encode()).hexdigest()[:16],
            "rewards": [list(reward) for reward in episode.rewards],
        }
        assert got == {name: case[name] for name in got}, (case["program"], task, case["seed"])


@pytest.mark.parametrize("program", [row for row in ROWS if row["kind"] == "agg"], ids=lambda row: row["task"])
def test_the_returns_of_32_variations_are_reproduced(program):
    returns = [karel(program["program"], program["task"], seed)[1].total for seed in range(32)]
    assert returns == program["rewards"]
    assert statistics.fmean(returns) == pytest.approx(program["mean32"], abs=1e-15)


def test_every_minigrid_case_is_reproduced():
    stored = rows("minigrid")
    for program in [row for row in stored if row["kind"] == "agg"]:
        got = []
        for row in [row for row in stored if row["kind"] == "init" and row["task"] == program["task"]]:
            room = Room.of(row)
            episode = run(parse(program["program"], MINIGRID), room, minigrid_reference.task_of(row, room))
            got.append((episode.total, episode.calls, len(episode.actions)))
        assert got == list(zip(program["rewards"], program["calls"], program["steps"], strict=True)), program["program"]
