"""`dressage render` and `Result.video` draw the program of a session or a bundle on a report state."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import av
import dressage
import pytest
from dressage.api.v1 import session_pb2
from dressage.cli.main import invoke
from dressage.episodes import compiling
from dressage.episodes.versions import FOLDER_VARIABLE
from dressage.policies import ProgramPolicy
from dressage.programs.families import program_task
from dressage.programs.pictures import Caption, RunPictures
from dressage.programs.pretty import to_python
from PIL import Image, ImageChops

from tests.fakes.orchestrator import Background, FakeOrchestrator

TASK = program_task("karel/FourCorners")
TEXT = (
    "DEF run m( REPEAT R=4 r( WHILE c( frontIsClear c) w( move w) IF c( rightIsClear c) i( putMarker i) turnLeft r) m)"
)
KEY = "sessions/s1/iterations/1/assignments/report-1/policies/best"


@pytest.fixture
def policy(kernels: None, monkeypatch: pytest.MonkeyPatch) -> ProgramPolicy:
    monkeypatch.setenv(FOLDER_VARIABLE, str(compiling._Place.folder))
    text = to_python(TASK.parse(TEXT)).text
    return ProgramPolicy(TEXT, text, TASK.environment, TASK.profile, tuple(TASK.report_states(9)))


@pytest.fixture
def server(policy: ProgramPolicy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Background]:
    session = session_pb2.Session(name="sessions/s1", state=session_pb2.SESSION_STATE_SUCCEEDED, method="program")
    session.spec.environment, session.best_policy = f"environments/{TASK.environment}", KEY
    session.best_iteration = "sessions/s1/iterations/1"
    fake = FakeOrchestrator(ended=session)
    fake.sessions["sessions/s1"] = session
    fake.artifacts = {f"{KEY}/{name}": text.encode() for name, text in policy.files().items()}
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DRESSAGE_HOME", str(tmp_path / "home"))
    with Background(fake) as running:
        monkeypatch.setenv("DRESSAGE_ADDRESS", running.address)
        yield running


def expected(policy: ProgramPolicy) -> tuple[int, float, RunPictures]:
    """Return the state with the median return, that return, and the pictures of its episode."""
    rows = [(TASK.trace(TASK.parse(policy.program), state).total, state) for state in policy.report_states]
    value = sorted(total for total, _ in rows)[len(rows) // 2]
    state = next(state for total, state in rows if total == value)
    pictures = RunPictures(TASK.trace(TASK.parse(policy.program), state), Caption(TASK.environment, state))
    return state, value, pictures


@pytest.mark.parametrize("source", ["s1", "bundle"])
def test_the_program_of_a_session_or_a_bundle_is_drawn(
    server: Background, policy: ProgramPolicy, source: str, capsys: pytest.CaptureFixture[str]
) -> None:
    if source == "bundle":
        policy.save(Path("bundle"))
    state, value, pictures = expected(policy)
    for name, frames in (("run.gif", len(pictures)), ("run.mp4", len(pictures) + 10), ("out/end.png", 1)):
        assert invoke(["render", source, "--out", name, "--json"]) == 0
        facts = json.loads(capsys.readouterr().out)
        assert (facts["video"], facts["frames"], facts["state"], facts["return"]) == (name, frames, state, value)
        assert (facts.get("artifact") == KEY) == (source == "s1")
    *_, last = pictures
    with Image.open("out/end.png") as end:
        assert ImageChops.difference(end.convert("RGB"), last).getbbox() is None
    with Image.open("run.gif") as gif:
        assert gif.size == pictures.size
    with av.open("run.mp4") as video:
        assert len(list(video.decode(video=0))) == len(pictures) + 10


def test_render_names_the_formats_and_a_session_without_program(
    server: Background, capsys: pytest.CaptureFixture[str]
) -> None:
    assert invoke(["render", "s1", "--out", "run.avi"]) == 1
    assert "--out: unknown format (got 'run.avi'); expected a name in .gif, .mp4, .png" in capsys.readouterr().err
    server.fake.sessions["sessions/s1"].best_policy = ""
    assert invoke(["render", "s1"]) == 1
    assert "sessions/s1 has no policy yet" in capsys.readouterr().err


def test_a_result_s_video_is_drawn_from_its_program(server: Background, policy: ProgramPolicy) -> None:
    result = dressage.result("s1", address=server.address)
    assert result.video is not None and result.video == result.video
    with av.open(str(result.video)) as video:
        assert len(list(video.decode(video=0))) == len(expected(policy)[2]) + 10
    assert "data:video/mp4;base64" in result._repr_html_()
