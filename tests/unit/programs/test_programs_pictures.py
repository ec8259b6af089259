"""Pictures show the agent, what cells hold and the executing line; files open and have the stated frames."""

from __future__ import annotations

from pathlib import Path

import av
import pytest
from dressage.cli.main import invoke
from dressage.episodes import compiling
from dressage.episodes.versions import FOLDER_VARIABLE
from dressage.programs.families import program_task
from dressage.programs.pictures import Caption, RunPictures, write_gif
from dressage.programs.symbols import AGENT, BACKGROUND, MARKER, WALL
from dressage.programs.trace import Trace
from PIL import Image

RUNS = {
    "karel/Harvester": "DEF run m( REPEAT R=3 r( pickMarker IF c( frontIsClear c) i( move i) turnLeft r) m)",
    "minigrid/PutNear": "DEF run m( REPEAT R=9 r( pickup IF c( front_is_clear c) i( forward i) right drop r) m)",
    "minigrid/RedBlueDoor": "DEF run m( REPEAT R=9 r( toggle IF c( front_is_clear c) i( forward i) left r) m)",
}
STAIRS = "DEF run m( WHILE c( noMarkersPresent c) w( turnLeft move turnRight move w) m)"


def traced(task: str, program: str, state: int = 1) -> Trace:
    chosen = program_task(task)
    return chosen.trace(chosen.parse(program), state)


def colours(image: Image.Image, box: tuple[int, int, int, int]) -> set[tuple[int, int, int]]:
    part = image.crop(box)
    return {part.getpixel((x, y)) for x in range(part.width) for y in range(part.height)}  # type: ignore[misc]


@pytest.mark.parametrize("task", RUNS)
def test_frames_show_the_agent_in_its_cell_and_the_executing_line(task: str) -> None:
    trace = traced(task, RUNS[task])
    pictures = RunPictures(trace, Caption(task, 1))
    frames = list(pictures)
    assert len(frames) == len(pictures) == len(trace.steps) + 2
    assert {frame.size for frame in frames} == {pictures.size} and not any(side % 2 for side in pictures.size)
    agents = [trace.start, *(step.agent for step in trace.steps)]
    contents = trace.contents
    for number, (frame, agent) in enumerate(zip(frames, agents, strict=False)):
        step = trace.steps[number - 1] if number else None
        if step is not None:
            contents.change(step)
        for row in range(contents.rows):
            for column in range(contents.columns):
                x, y = pictures.place(row, column)
                seen = colours(frame, (x + 1, y + 1, x + pictures.cell, y + pictures.cell))
                assert (AGENT in seen) == ((row, column) == (agent.row, agent.column)), (number, row, column)
                if (row, column) in contents.walls:
                    assert WALL in seen
                elif contents.markers.get((row, column)):
                    assert MARKER in seen
        for line in range(1, len(trace.printout.text.split("\n")) + 1):
            _, top, right, _ = pictures.line_box(line, None if step is None else step.line)
            highlighted = frame.getpixel((right - 2, top + 2)) != BACKGROUND
            assert highlighted == (step is not None and line == step.line)


def test_a_turn_changes_only_the_picture_of_the_agent_and_the_texts() -> None:
    pictures = RunPictures(traced("karel/Maze", "DEF run m( turnLeft m)"), Caption("karel/Maze", 1))
    start, turned, _ = pictures
    x, y = pictures.place(6, 1)
    box = (x, y, x + pictures.cell, y + pictures.cell)
    assert start.crop(box).tobytes() != turned.crop(box).tobytes()
    rest = (x + pictures.cell + 1, y, pictures.place(6, 8)[0], y + pictures.cell)
    assert start.crop(rest).tobytes() == turned.crop(rest).tobytes()


def test_long_programs_scroll_and_long_runs_are_cut() -> None:
    trace = traced("karel/Maze", "DEF run m( " + "turnLeft " * 60 + "m)")
    pictures = RunPictures(trace, Caption("karel/Maze", 1), limit=40)
    assert len(pictures) == 40
    frames = list(pictures)
    for step, frame in zip(trace.steps, frames[1:-1], strict=False):
        _, top, right, bottom = pictures.line_box(step.line, step.line)
        assert top > 0 and bottom < pictures.size[1] and frame.getpixel((right - 2, top + 2)) != BACKGROUND


def test_a_gif_has_every_frame(tmp_path: Path) -> None:
    pictures = RunPictures(traced("karel/StairClimber", STAIRS), Caption("karel/StairClimber", 1))
    path = tmp_path / "run.gif"
    count = write_gif(pictures, path, fps=5)
    with Image.open(path) as image:
        durations = [0] * image.n_frames  # type: ignore[attr-defined]
        for number in range(len(durations)):
            image.seek(number)
            durations[number] = image.info["duration"]
    # Equal frames that follow each other may be one, which is shown for as long.
    assert count == len(pictures) and len(durations) <= count and sum(durations) == 200 * (count - 1) + 2000
    assert [entry.name for entry in tmp_path.iterdir()] == ["run.gif"]


def test_the_command_writes_mp4_and_png(
    tmp_path: Path, kernels: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(FOLDER_VARIABLE, str(compiling._Place.folder))
    words = ["programs", "render", STAIRS, "--task", "StairClimber", "--seed", "1", "--fps", "4", "--out"]
    assert invoke([*words, str(tmp_path / "run.mp4")]) == 0
    pictures = RunPictures(traced("karel/StairClimber", STAIRS), Caption("karel/StairClimber", 1))
    with av.open(str(tmp_path / "run.mp4")) as video:
        frames = list(video.decode(video=0))
    assert len(frames) == len(pictures) + 8 and (frames[0].width, frames[0].height) == pictures.size
    assert invoke([*words, str(tmp_path / "end.png")]) == 0
    with Image.open(tmp_path / "end.png") as image:
        assert image.size == pictures.size
    capsys.readouterr()
    assert invoke([*words, str(tmp_path / "run.avi")]) == 1
    assert "--out: unknown format" in capsys.readouterr().err
