"""The descriptions of the tasks agree with the stored initial states; the replies written by hand can serve as seeds."""

from __future__ import annotations

import functools
import json
import re
import statistics
from pathlib import Path
from typing import Any

import pytest
from dressage.envs.catalogue import catalogue
from dressage.programs.from_reply import from_reply
from dressage.programs.syntax import KAREL, MINIGRID, Program, to_text
from dressage.programs.tasks_text import task_texts

from tests.reference import karel_tasks, minigrid_reference
from tests.reference.interpreter import run
from tests.reference.karel_reference import World, rows
from tests.reference.minigrid_reference import Room

TASK_TEXTS = task_texts(KAREL) | task_texts(MINIGRID)
CLASSES = {"StairClimber": ("StairClimberSparse", "StairClimber"), "Maze": ("MazeSparse", "Maze")}
"""Two tasks of the benchmark have sparse rewards; their seeds must not solve the dense form either."""


@functools.cache
def initial_states(name: str) -> list[dict[str, Any]]:
    """The initial states of a task's class, of Karel or Minigrid."""
    stored_rows = [*rows("karel"), *rows("minigrid")]
    return [row for row in stored_rows if row["kind"] == "init" and row["task"] == name]


def replies_file(task: str) -> Path:
    return catalogue()[f"{TASK_TEXTS[task].language.name}/{task}"].path / "replies.jsonl"


def stored(task: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    meta, *replies = [json.loads(line) for line in replies_file(task).read_text("utf-8").splitlines()]
    return meta, replies


def programs(task: str) -> dict[str, Program]:
    """The programs of a task's replies, by their text."""
    candidates = [
        candidate for row in stored(task)[1] for candidate in from_reply(row["reply"], TASK_TEXTS[task].language)
    ]
    return {to_text(item.program): item.program for item in candidates if item.program is not None}


def mean_return(program: Program, name: str) -> float:
    returns = []
    for row in initial_states(name):
        if "hero" in row:
            world = World.of(row)
            episode = run(program, world, karel_tasks.task_of(row, world))
        else:
            room = Room.of(row)
            episode = run(program, room, minigrid_reference.task_of(row, room))
        returns.append(episode.total)
    return statistics.fmean(returns)


def test_every_task_has_a_description_and_replies():
    assert len(TASK_TEXTS) == 15
    assert all(replies_file(task).exists() for task in TASK_TEXTS)
    for text in TASK_TEXTS.values():
        for part in (text.map, text.start, text.goal, text.returns):
            assert 10 < len(part) < 400
            assert part.endswith(".")


@pytest.mark.parametrize("task", TASK_TEXTS)
def test_a_description_agrees_with_the_initial_states(task):
    text = TASK_TEXTS[task]
    states = initial_states(CLASSES.get(task, (task,))[0])
    size = re.search(r"(\d+)x(\d+) grid|(\d+) rows and (\d+) columns|grid of (\d+)x(\d+)|(\d+)x(\d+) room", text.map)
    one, other = (int(part) for part in size.groups() if part)
    directions = {row["hero"][2] if text.language is KAREL else row["dir"] for row in states}
    names = ("north", "east", "south", "west") if text.language is KAREL else ("right", "down", "left", "up")
    assert {(row["h"], row["w"]) for row in states} == ({(one, other)} if text.language is KAREL else {(other, one)})
    if len(directions) == 1:
        assert f"faces {names[directions.pop()]}" in text.start
    else:
        assert "a random direction" in text.start


@pytest.mark.parametrize("task", TASK_TEXTS)
def test_replies_written_by_hand_can_be_read_unless_marked_as_faulty(task):
    meta, replies = stored(task)
    assert meta["task"] == task
    assert meta["language"] == TASK_TEXTS[task].language.name
    assert "by hand" in meta["provenance"]
    for row in replies:
        candidates = from_reply(row["reply"], TASK_TEXTS[task].language)
        assert candidates
        for candidate in candidates:
            assert (candidate.program is None) == ("faulty" in row), (row["reply"], candidate.problem)
    assert len(programs(task)) >= 32


@pytest.mark.parametrize(("task", "name"), [(task, name) for task in TASK_TEXTS for name in CLASSES.get(task, (task,))])
def test_no_reply_written_by_hand_solves_its_task(task, name):
    returns = [mean_return(program, name) for program in programs(task).values()]
    assert max(returns) <= 0.7
    assert min(returns) < statistics.median(returns) < max(returns)
