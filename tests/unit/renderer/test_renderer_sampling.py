"""The times of sampled frames, and their pages."""

from __future__ import annotations

import numpy as np
import pytest
from dressage.errors import InvalidArgument
from dressage_renderer.frames import blend_ghosts, compose_page
from dressage_renderer.options import PER_PAGE, SamplingOptions, page_grid, rate_of, sample_times
from hypothesis import given
from hypothesis import strategies as st


@given(
    fps=st.floats(0.5, 60),
    start=st.floats(0, 3),
    length=st.one_of(st.none(), st.floats(0.1, 30)),
    most=st.integers(1, 256),
    duration=st.floats(3.5, 60),
)
def test_times_are_within_the_window_and_their_number_within_its_limit(fps, start, length, most, duration):
    end = None if length is None else start + length
    options = SamplingOptions(fps=fps, start=start, end=end, max_frames=most)
    times = sample_times(options, duration=duration)
    assert 1 <= len(times) <= most
    assert times[0] == pytest.approx(start) and times[-1] <= min(duration, end or duration) + 1e-9
    assert (np.diff(times) > 0).all()
    if len(times) > 1:
        # Never denser than asked for, and as dense wherever the bound allows it.
        assert rate_of(times, options) <= fps * (1 + 1e-6)
        if len(times) < most:
            assert np.diff(times) == pytest.approx(1 / fps)


def test_a_window_beyond_the_end_is_refused():
    with pytest.raises(InvalidArgument, match="before the episode's end at 4"):
        sample_times(SamplingOptions(start=5), duration=4)
    with pytest.raises(InvalidArgument, match="after start"):
        SamplingOptions(start=2, end=1)


@given(frames=st.integers(1, 256))
def test_pages_contain_every_frame_once(frames):
    pages = page_grid(frames)
    assert [first for first, _, _ in pages] == list(range(0, frames, PER_PAGE))
    assert sum(count for _, count, _ in pages) == frames
    assert all(columns * columns >= count > columns * (columns - 2) for _, count, columns in pages)


def test_a_page_has_unchanged_numbered_frames():
    pictures = [np.full((64, 64, 3), 40 * place, dtype=np.uint8) for place in range(1, 6)]
    page = compose_page(pictures, first=17, columns=3)
    assert page.shape == (2 * 68 - 4, 3 * 68 - 4, 3)
    assert (page[0, 0] == 40).all() and (page[70, 70] == 200).all() and (page[131, 199] == 245).all()
    label = page[50:64, 0:20]
    assert (label == 0).any() and (label > 180).any()


def test_earlier_frames_are_pale_and_do_not_cover_the_robot():
    present = np.zeros((4, 4, 3), dtype=np.uint8)
    robot = np.zeros((4, 4), dtype=bool)
    present[1, 1], robot[1, 1] = 200, True
    early, late = np.zeros_like(present), np.zeros_like(present)
    early[2, 2], late[3, 3] = 200, 200
    blended = blend_ghosts(present, robot, [early, late])
    assert (blended[1, 1] == 200).all()
    assert 0 < blended[2, 2, 0] < blended[3, 3, 0] < 200
    assert (blended[0] == 0).all()
