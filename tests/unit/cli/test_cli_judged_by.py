"""The final table, the lineage and the Python result state what judged a score, why not video, and what is left out."""

from __future__ import annotations

from typing import Any

import pytest
from dressage.api.v1 import session_pb2 as pb
from dressage.api.v1 import session_service_pb2 as sessions_pb
from dressage.cli import listings, output
from dressage.cli.summary import print_result
from dressage.errors import InvalidArgument
from dressage.local.connection import Connection
from dressage.sdk.results import Result, rows
from dressage.sdk.scores import Judgment
from dressage.sdk.texts import score_text
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from tests.fakes.options import spec_of

BOTH = pb.Judgment(
    score=0.8,
    passed=True,
    judged_by="code and video",
    rollouts=9,
    video_rollouts=3,
    video_left_out=2,
    unjudged_rollouts=1,
)
CODE = pb.Judgment(
    score=0.7, passed=True, judged_by="code", rollouts=9, without_video="template/v1 has no vision support"
)


@pytest.mark.parametrize(
    ("judgment", "text"),
    [
        (BOTH, "code and video (3 of 9 rollouts by video; 2 left out by video; 1 not judged)"),
        (CODE, "code (9 rollouts; no video: template/v1 has no vision support)"),
        (pb.Judgment(judged_by="video", rollouts=3, video_rollouts=3), "video (3 of 3 rollouts by video)"),
        (pb.Judgment(score=0.5), ""),
    ],
)
def test_a_judgment_states_what_judged_it(judgment: pb.Judgment, text: str) -> None:
    assert Judgment.of(judgment).judged == text


def result_of(session: pb.Session) -> Result:
    return Result(session, Connection(None, "remote", None))  # type: ignore[arg-type]


def judged_by(first: pb.Judgment, second: pb.Judgment) -> list[str]:
    """The rows of what judged."""
    session = pb.Session(state=pb.SESSION_STATE_SUCCEEDED, best_judgment=first, confirmation=second)
    return [text for label, text in rows(result_of(session)) if label == "judged by"]


def test_the_result_states_the_time_worked_and_the_time_waited() -> None:
    session = pb.Session(state=pb.SESSION_STATE_SUCCEEDED, idle_seconds=7200, approval_wait_seconds=60)
    session.start_time.FromSeconds(1000)
    session.end_time.FromSeconds(1000 + 7260 + 185)
    expected = "3 min 05 s, not counting 2 h 01 min of waiting, 0 environment steps"
    assert dict(rows(result_of(session)))["took"] == expected


def test_the_result_states_what_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = judged_by(BOTH, CODE)
    assert first.startswith("code and video (3 of 9 rollouts by video") and "no video: template/v1 has no" in second
    assert len(judged_by(BOTH, BOTH)) == 1
    assert judged_by(pb.Judgment(score=0.5), pb.Judgment(score=0.5)) == []
    console = Console(width=160, record=True)
    monkeypatch.setattr(output, "console", lambda: console)
    print_result(result_of(pb.Session(name="sessions/s", best_judgment=BOTH)))
    assert "judged by  code and video (3 of 9 rollouts by video" in console.export_text()


def test_the_lineage_states_what_judged(capsys: pytest.CaptureFixture[str]) -> None:
    node = sessions_pb.LineageNode(iteration="sessions/s/iterations/1", score=0.7, judged_by="code")
    node.without_video = "template/v1 has no vision support"
    listings.print_lineage(sessions_pb.Lineage(nodes=[node]), as_json=False)
    shown = " ".join(capsys.readouterr().out.split())
    assert "judged by code, no video: template/v1 has no vision support" in shown


def options(*video: str, **more: str) -> dict[str, Any]:
    return {"intent": "flip", "env": "HalfCheetah-v5", "video_options": list(video), **more}


def test_video_options_become_the_specs() -> None:
    spec = spec_of(
        **options("fps=20", "window-seconds=1.5", "votes=5", "motion_trail=true", "camera=track", video="only")
    )
    assert spec.video_options == pb.VideoOptions(fps=20, window_seconds=1.5, votes=5, motion_trail=True, camera="track")
    assert spec.video_judging == pb.VIDEO_JUDGING_ONLY
    base = pb.SessionSpec(intent="flip", environment="environments/HalfCheetah-v5", video_judging=pb.VIDEO_JUDGING_NONE)
    assert spec_of(base, **options()).video_judging == pb.VIDEO_JUDGING_NONE


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("rate=20", r"--video-option rate: unknown field.*fps, window_seconds, votes, motion_trail, camera"),
        ("fps=fast", r"--video-option fps: .*a number"),
        ("motion_trail=perhaps", r"--video-option motion_trail: .*true or false"),
    ],
)
def test_an_unknown_video_option_is_refused(option: str, message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        spec_of(**options(option))


@given(value=st.floats(-2, 2), threshold=st.decimals("0.001", 1, places=3).map(float))
def test_the_text_of_a_score_is_on_its_side_of_the_threshold(value: float, threshold: float) -> None:
    shown = float(score_text(value, threshold=threshold))
    assert shown == pytest.approx(value, abs=0.005 + 1e-9)
    assert (shown >= threshold) == (value >= threshold) or abs(threshold - value) < 1e-6


def test_a_score_just_below_the_threshold_does_not_read_as_reached() -> None:
    judgment = pb.Judgment(score=0.6987, samples=[0.6987])
    session = pb.Session(state=pb.SESSION_STATE_EXHAUSTED, best_judgment=judgment, confirmation=judgment)
    session.spec.pass_threshold = 0.7
    table = dict(rows(result_of(session)))
    assert table["score"].startswith("0.699, ") and table["confirmed"].endswith("(below the threshold)")
    session.spec.pass_threshold = 0.75
    assert dict(rows(result_of(session)))["score"].startswith("0.70, ")
