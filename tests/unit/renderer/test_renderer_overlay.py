"""The overlay displays the trajectory's values and changes only its strip."""

from __future__ import annotations

import numpy as np
import pytest
from dressage.envs.trajectory import Trajectory
from dressage.errors import InvalidArgument
from dressage_renderer.overlay import Overlay, readings


def episode(**extra: np.ndarray) -> Trajectory:
    steps = 40
    time = np.arange(steps + 1) * 0.05
    return Trajectory(
        environment="HalfCheetah-v5",
        seed=0,
        fields={"time": time.astype(np.float32), "x_velocity": np.sin(time), **extra},
        action=np.zeros((steps, 6)),
        reward=np.linspace(-1, 2, steps),
        terminated=False,
        truncated=True,
        qpos=np.zeros((steps + 1, 9)),
        qvel=np.zeros((steps + 1, 9)),
    )


def test_speed_is_the_mean_of_the_last_fifth_of_a_second() -> None:
    trajectory = episode()
    numbers = readings(trajectory)
    assert numbers.speed is not None
    for row in (0, 2, 17, 40):
        expected = np.mean(trajectory.fields["x_velocity"][max(0, row - 3) : row + 1])
        assert numbers.speed[row] == pytest.approx(expected)


def test_the_return_grows_step_by_step() -> None:
    trajectory = episode()
    assert readings(trajectory).text(0.0)[-1] == "return 0.0"
    for steps in (1, 20, 40):
        shown = readings(trajectory).text(steps * 0.05)
        assert shown[0] == f"{steps * 0.05:.2f} s"
        assert shown[-1] == f"return {trajectory.reward[:steps].sum():.1f}"


def test_another_field_is_summed_on_request() -> None:
    own = np.ones(41)
    assert readings(episode(own_reward=own), term="own_reward").text(1.0)[-1] == "return 20.0"


def test_an_unknown_field_is_refused_with_the_known_ones() -> None:
    with pytest.raises(InvalidArgument, match=r"overlay_return.*x_velocity"):
        readings(episode(), term="nonsense")


def test_without_a_forward_speed_no_speed_is_displayed() -> None:
    trajectory = episode()
    without = {"time": trajectory.fields["time"]}
    still = Trajectory(**{**vars(trajectory), "fields": without})
    assert readings(still).speed is None
    assert len(readings(still).text(1.0)) == 2


@pytest.mark.parametrize("size", [(64, 64), (480, 480), (640, 360)])
def test_only_the_strip_changes_and_holds_bright_text(size: tuple[int, int]) -> None:
    width, height = size
    frame = np.full((height, width, 3), 200, dtype=np.uint8)
    Overlay(readings(episode()), width=width, height=height).draw(frame, 1.0)
    rows = np.flatnonzero((frame != 200).any(axis=(1, 2)))
    strip = rows.max() + 1
    assert strip < height / 3
    assert (frame[strip:] == 200).all()
    background, text = np.bincount(frame[:strip].ravel()).argmax(), frame[:strip].max()
    assert background < 80
    assert text > 220


def test_the_text_follows_the_time() -> None:
    overlay = Overlay(readings(episode()), width=480, height=480)
    first, later = (np.zeros((480, 480, 3), dtype=np.uint8) for _ in range(2))
    overlay.draw(first, 0.5)
    overlay.draw(later, 1.5)
    assert (first != later).any()
