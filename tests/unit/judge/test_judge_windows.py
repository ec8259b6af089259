"""The decisive window of an episode: chosen from motion, the moments of visual criteria, and the code judge's evidence."""

from __future__ import annotations

import numpy as np
import pytest
from dressage.api.internal.v1 import agent_service_pb2 as agent_pb
from dressage.api.v1 import session_pb2
from dressage.contracts.footage import MAX_WINDOW_FRAMES, Footage
from dressage.envs.trajectory import Trajectory
from dressage.errors import InvalidArgument
from dressage_judge.windows import choose
from hypothesis import given
from hypothesis import strategies as st

STEP = 0.05


def episode(*, seconds: float = 50.0, flip: float = 20.0, jump: float = 35.0, rush: float = 8.0) -> Trajectory:
    """An episode that turns at one time, is high at another and moves its joints at a third; otherwise it shakes evenly."""
    time = np.arange(round(seconds / STEP) + 1) * STEP

    def bump(at: float, width: float) -> np.ndarray:
        return np.exp(-(((time - at) / width) ** 2))

    fields = {
        "time": time,
        "pitch_velocity": 15 * bump(flip, 0.2) + 0.1 * np.sin(time),
        "z_position": 0.5 + bump(jump, 0.3),
        "x_velocity": np.full(len(time), 2.0),
    }
    qvel = np.stack([0.3 + 3 * bump(rush, 0.5), 0.2 + 2 * bump(rush, 0.5)], axis=1)
    steps = len(time) - 1
    return Trajectory("E", 0, fields, np.zeros((steps, 1)), np.zeros(steps), False, True, qvel, qvel)


def criterion(moment: str) -> agent_pb.VisualCriterion:
    return agent_pb.VisualCriterion(title="it", moment=moment)


@pytest.mark.parametrize(
    ("moment", "second"), [("turning", 20.0), ("highest", 35.0), ("throughout", 8.0), ("start", 0.5), ("end", 49.5)]
)
def test_the_window_contains_the_moment_of_a_criterion(moment, second):
    window = choose(episode(), [criterion(moment)], {}, seconds=3)
    assert window.start <= second <= window.end and window.end - window.start == pytest.approx(3)
    assert ("it” (" + moment in window.reason) is (moment != "throughout")


@given(flip=st.floats(2, 48), at=st.floats(2, 48))
def test_the_second_of_the_evidence_outweighs_motion_and_one_criterion(flip, at):
    window = choose(episode(flip=flip), [criterion("turning")], {"landing_at_s": at, "speed_m_s": 3.0}, seconds=3)
    assert window.start - 1e-9 <= at <= window.end + 1e-9
    assert f"second {at:.2f}, which" in window.reason and "landing" not in window.reason
    assert window.start >= 0 and window.end <= 50 + 1e-9


def test_evidence_outside_of_the_episode_is_ignored():
    evidence = {"a_at_s": -1.0, "b_at_s": 51.0, "c_at_s": float("nan")}
    assert choose(episode(), [], evidence, seconds=3) == choose(episode(), [], {}, seconds=3)


def test_an_even_episode_is_shown_in_its_middle_and_a_short_one_whole():
    even = episode(flip=-100, jump=-100, rush=-100)
    window = choose(even, [criterion("fastest"), criterion("highest")], {}, seconds=4)
    assert (window.start + window.end) / 2 == pytest.approx(25, abs=0.2)  # at most 400 starts are compared
    whole = choose(episode(seconds=2.5), [criterion("end")], {}, seconds=3)
    assert (whole.start, whole.end, whole.reason) == (0.0, 2.5, "")


def test_a_trajectory_without_joints_and_heights_has_a_window():
    bare = episode()
    bare = Trajectory(
        "E", 0, {"time": bare.time}, bare.action, bare.reward, False, True, bare.qpos[:, :0], bare.qpos[:, :0]
    )
    window = choose(bare, [criterion("highest"), criterion("fastest")], {}, seconds=3)
    assert window.end - window.start == pytest.approx(3)


def test_a_window_of_too_many_frames_is_refused_with_the_longest_one():
    assert Footage.of(session_pb2.VideoOptions()) == Footage(10.0, 3.0, 3)
    longest = Footage.of(session_pb2.VideoOptions(fps=10, window_seconds=7.9))
    assert longest.window_frames == MAX_WINDOW_FRAMES
    with pytest.raises(InvalidArgument, match=r"video_options.window_seconds.*at most 3.95 s at 20 frames"):
        Footage.of(session_pb2.VideoOptions(fps=20, window_seconds=4))
