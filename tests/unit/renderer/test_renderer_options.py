"""Options of videos: windows, speeds, numbers of frames, and errors with the name of the field."""

from __future__ import annotations

import math

import numpy as np
import pytest
from dressage.errors import InvalidArgument
from dressage_renderer.options import MAX_FRAMES, RenderOptions, frame_times, still_indices
from hypothesis import given
from hypothesis import strategies as st


@given(
    duration=st.floats(0.05, 100),
    start_share=st.floats(0, 0.99),
    length=st.floats(0.01, 25),
    fps=st.floats(1, 60),
    speed=st.floats(0.1, 10),
)
def test_frames_are_evenly_spaced_within_the_window(
    duration: float, start_share: float, length: float, fps: float, speed: float
) -> None:
    start = duration * start_share
    options = RenderOptions(start=start, end=start + length, fps=fps, speed=speed)
    times = frame_times(options, duration=duration)
    end = min(start + length, duration)
    assert times[0] == start
    assert (times >= start).all()
    assert (times <= end + 1e-6 * speed).all()
    assert len(times) == 1 or np.allclose(np.diff(times), speed / fps)
    # One more frame would lie beyond the window.
    assert times[-1] + speed / fps > end - 1e-4


def test_the_default_window_is_ten_seconds_or_a_shorter_episode() -> None:
    assert len(frame_times(RenderOptions(), duration=50.0)) == 301
    assert len(frame_times(RenderOptions(), duration=2.0)) == 61
    assert len(frame_times(RenderOptions(start=45.0), duration=50.0)) == 151


def test_half_speed_takes_twice_the_frames() -> None:
    assert len(frame_times(RenderOptions(end=2.0, speed=0.5), duration=50.0)) == 121


def test_an_episode_of_no_steps_gives_one_frame() -> None:
    assert frame_times(RenderOptions(), duration=0.0).tolist() == [0.0]


def test_odd_sizes_become_even() -> None:
    options = RenderOptions(width=481, height=479)
    assert (options.width, options.height) == (482, 480)


@pytest.mark.parametrize(
    ("field", "values"),
    [
        ("width", {"width": 2}),
        ("height", {"height": 5000}),
        ("fps", {"fps": 0.0}),
        ("fps", {"fps": math.nan}),
        ("speed", {"speed": -1.0}),
        ("start", {"start": math.inf}),
        ("end", {"start": 3.0, "end": 2.0}),
        ("frames", {"stills": -1}),
    ],
)
def test_a_bad_value_is_refused_with_its_name(field: str, values: dict[str, float]) -> None:
    with pytest.raises(InvalidArgument) as caught:
        RenderOptions(**values)  # type: ignore[arg-type]
    assert caught.value.field == field
    assert field in caught.value.message


def test_a_window_after_the_end_is_refused_with_the_end() -> None:
    with pytest.raises(InvalidArgument, match=r"start.*before the episode's end at 3\.50 s"):
        frame_times(RenderOptions(start=3.5), duration=3.5)


def test_too_many_frames_are_refused_with_a_remedy() -> None:
    with pytest.raises(InvalidArgument, match=f"expected at most {MAX_FRAMES}. Use a shorter window"):
        frame_times(RenderOptions(end=1e6, speed=0.01), duration=1e6)


@given(frames=st.integers(1, 2000), stills=st.integers(1, 1000))
def test_stills_are_spread_from_first_to_last(frames: int, stills: int) -> None:
    chosen = still_indices(frames, stills)
    assert len(chosen) == min(stills, frames)
    assert chosen == sorted(set(chosen))
    assert chosen[0] == 0
    assert stills == 1 or chosen[-1] == frames - 1


def test_options_are_unchanged_as_json() -> None:
    options = RenderOptions(width=200, start=1.5, end=None, camera="track", overlay=False, stills=3)
    assert RenderOptions.from_dict(options.to_dict()) == options
