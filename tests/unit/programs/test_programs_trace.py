"""Traces agree with the slow reference interpreter, operation by operation, and with `play`; their text is bounded."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from dressage.programs.karel.machine import play
from dressage.programs.karel.stepping import HEADINGS, KarelWorld
from dressage.programs.karel.tasks import TASK_CLASSES, class_of, task_class
from dressage.programs.karel.worlds import Worlds
from dressage.programs.pretty import to_indented
from dressage.programs.stored_states import stored_layout
from dressage.programs.syntax import KAREL, Test, parse
from dressage.programs.trace import Trace, trace
from dressage.programs.trace_text import MAX_TEXT, trace_text
from hypothesis import given, settings

from tests.reference import karel_tasks
from tests.reference.interpreter import Episode, run
from tests.reference.karel_reference import World, rows
from tests.unit.programs.strategies import SEEDS
from tests.unit.programs.strategies import program as random_program

ROWS = rows("karel")
INITS = {(row["task"], row["seed"]): row for row in ROWS if row["kind"] == "init"}
KEY_THEN_DOOR = (
    "DEF run m( WHILE c( noMarkersPresent c) w( turnRight move move w) pickMarker "
    "WHILE c( noMarkersPresent c) w( move move turnLeft w) putMarker m)"
)


class Watched(World):
    """The reference's world; ``operations`` are its perceptions and actions with the state after them."""

    def __post_init__(self) -> None:
        self.operations: list[tuple[Any, ...]] = []

    def perceive(self, test: Test) -> bool:
        result = super().perceive(test)
        self.operations.append((f"{test.name}()", result, *self.hero, self.heading))
        return result

    def act(self, action: str, *, blocked: bool = False) -> None:
        super().act(action, blocked=blocked)
        self.operations.append((f"{action}()", None, *self.hero, self.heading))


def reference(program: str, row: dict[str, Any]) -> tuple[Watched, Episode]:
    plain = World.of(row)
    world = Watched(plain.height, plain.width, plain.hero, plain.heading, plain.walls, plain.markers)
    world.__post_init__()
    return world, run(parse(program, KAREL), world, karel_tasks.task_of(row, world))


def traced(program: str, row: dict[str, Any]) -> Trace:
    worlds = Worlds.from_layouts(task_class(row["task"]), [stored_layout(row)])
    return trace(parse(program, KAREL), KarelWorld(worlds, 0))


def changed(result: Trace, world: World, row: dict[str, Any]) -> tuple[dict[Any, int], set[Any]]:
    """Markers and walls at the end, from the changes of the steps."""
    start = World.of(row)
    for step in result.steps:
        start.markers.update({(r, c): count for r, c, count in step.markers})
        for r, c, wall in step.walls:
            (start.walls.add if wall else start.walls.discard)((r, c))
    return start.markers, start.walls


def cases(task: str) -> Iterator[dict[str, Any]]:
    chosen = [row for row in ROWS if row["kind"] == "case" and row["task"] == task]
    yield from chosen[:: max(1, len(chosen) // 12)]


@pytest.mark.parametrize("task", TASK_CLASSES)
def test_a_trace_has_the_operations_of_the_reference(task):
    compared = 0
    for case in cases(task):
        row = INITS[task, case["seed"]]
        (world, episode), result = reference(case["program"], row), traced(case["program"], row)
        got = [
            (step.operation, step.result, step.agent.row, step.agent.column, HEADINGS.index(step.agent.heading))
            for step in result.steps
        ]
        # The reference also has the perceptions after a crash, which a trace only counts.
        assert got == world.operations[: len(got)]
        assert len(got) == len(world.operations) or result.crashed
        actions = [step for step in result.steps if step.kind == "action"]
        rewards = [(number, step.reward) for number, step in enumerate(actions, start=1) if step.reward]
        assert rewards == episode.rewards
        assert (result.total, result.actions, result.calls) == (episode.total, len(episode.actions), episode.calls)
        assert (result.terminated, result.crashed) == (episode.terminated, episode.crashed)
        assert changed(result, world, row) == (world.markers, world.walls)
        compared += len(got)
    assert compared > 12 or task == "CleanHouseSparse"


@given(seed=SEEDS)
@settings(max_examples=40, deadline=None)
def test_a_trace_agrees_with_play_on_random_programs(seed):
    program = random_program(seed, KAREL, largest_count=19)
    worlds = Worlds.of(task_class("DoorKey" if seed % 2 else "Snake"), [seed % 32])
    played, result = play(program, worlds)[0], trace(program, KarelWorld(worlds, 0), printout=to_indented(program))
    assert (result.total, result.actions, result.calls) == (played.reward, played.steps, played.calls)
    ends = (result.terminated, result.crashed, result.exhausted)
    assert ends == (played.terminated, played.crashed, played.exhausted)
    lines = result.printout.text.split("\n")
    for step in result.steps:
        assert step.operation.removesuffix("()") in lines[step.line - 1]


def test_the_worst_variation_is_traced_and_its_steps_name_their_lines():
    worlds = Worlds.of(class_of("DoorKey"), range(32))
    program = parse(KEY_THEN_DOOR, KAREL)
    returns = [episode.reward for episode in play(program, worlds)]
    result = trace(program, KarelWorld(worlds, int(np.argmin(returns))))
    assert result.total == min(returns)
    lines = result.printout.text.split("\n")
    assert result.steps and all(step.operation in lines[step.line - 1] for step in result.steps)
    # Two equal loops are two nodes: their states are not confused.
    assert {step.line for step in result.steps} >= {2, 3, 4, 5}


def test_a_loop_that_neither_perceives_nor_acts_is_bounded(monkeypatch):
    monkeypatch.setattr("dressage.programs.trace.MAX_ITERATIONS", 10_000)
    program = parse("DEF run m( REPEAT R=9999 r( REPEAT R=9999 r( REPEAT R=0 r( move r) r) r) m)", KAREL)
    result = trace(program, KarelWorld(Worlds.of(task_class("Maze"), [0]), 0))
    assert result.exhausted and result.crashed and not result.steps


def test_the_text_shows_grid_code_steps_views_rewards_and_totals():
    worlds = Worlds.of(class_of("Harvester"), [3])
    body = "pickMarker move turnLeft pickMarker"
    text = trace_text(trace(parse(f"DEF run m( {body} m)", KAREL), KarelWorld(worlds, 0)), program_lines=False)
    assert text.count("########") == 2 and "facing east" in text and "  2 |     pickMarker()" in text
    assert "1. line 2: pickMarker(), reward +0.02778; then at row 6, column" in text
    assert "facing north, on 1 marker\n      111\n      .^1\n      ###" in text
    assert "return 0.05556, 4 actions, 4 calls" in text and "came to its end" in text


def test_the_executing_line_is_marked_on_request():
    worlds = Worlds.of(class_of("DoorKey"), range(32))
    result = trace(parse(KEY_THEN_DOOR, KAREL), KarelWorld(worlds, 0))
    plain, marked = (trace_text(result, program_lines=flag) for flag in (False, True))
    assert "    >" not in plain
    shown = [line for line in marked.split("\n") if line.startswith("    >")]
    assert len(shown) == min(49, len(result.steps))
    for line, step in zip(shown, result.steps, strict=False):
        assert step.operation in line


def test_the_text_of_the_longest_episode_is_bounded():
    nested = "IF c( frontIsClear c) i( " * 50 + "move " + "i) " * 50
    program = parse(f"DEF run m( {nested * 13} REPEAT R=10000 r( turnLeft r) m)", KAREL)
    result = trace(program, KarelWorld(Worlds.of(task_class("CleanHouse"), [0]), 0))
    assert len(result.steps) <= 20_000
    text = trace_text(result, program_lines=True, most=10_000)
    assert len(text) < MAX_TEXT and "are left out" in text and "more lines" in text
