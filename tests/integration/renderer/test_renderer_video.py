"""Rendered videos, decoded: they have the requested properties and show the robot."""

from __future__ import annotations

import itertools
from pathlib import Path

import av
import numpy as np
import pytest
from dressage.envs.packs import registry
from dressage.envs.trajectory import Trajectory, load_check_trajectories
from dressage.errors import FailedPrecondition, InvalidArgument, NotFound
from dressage_renderer.options import RenderOptions
from dressage_renderer.overlay import Overlay, Readings
from dressage_renderer.probe import EGL_INSTALL_COMMAND, probe_egl
from dressage_renderer.stage import Stage
from dressage_renderer.video import render_video

from tests.unit.envs.body_poses import CART_POLE, write_pack


@pytest.fixture(scope="module", autouse=True)
def egl() -> None:
    fault = probe_egl()
    if fault is not None:
        pytest.fail(fault)


@pytest.fixture(scope="module")
def cheetah() -> Trajectory:
    return load_check_trajectories("HalfCheetah-v5")["random"][0]


def decoded(path: Path) -> tuple[av.video.stream.VideoStream, list[np.ndarray], float]:
    with av.open(str(path)) as container:
        stream = container.streams.video[0]
        frames = [frame.to_ndarray(format="rgb24") for frame in container.decode(stream)]
        return stream, frames, float((stream.duration or 0) * stream.time_base)


def test_the_video_has_the_requested_codec_size_rate_and_duration(cheetah: Trajectory, tmp_path: Path) -> None:
    path = tmp_path / "video.mp4"
    options = RenderOptions(width=161, height=128, fps=30, start=0.5, end=1.5)
    report = render_video(cheetah, path, options)
    stream, frames, duration = decoded(path)
    assert stream.codec_context.name == "h264"
    assert stream.codec_context.pix_fmt == "yuv420p"
    assert (stream.width, stream.height) == (162, 128)
    assert stream.average_rate == 30
    assert len(frames) == report.frames == 31
    assert duration == pytest.approx(report.duration, abs=1e-3) == pytest.approx(31 / 30)
    assert all((a != b).any() for a, b in itertools.pairwise(frames))
    # A browser begins to play before it has the whole file only when the index comes first.
    data = path.read_bytes()
    assert 0 < data.index(b"moov") < data.index(b"mdat")
    assert [item.name for item in tmp_path.iterdir()] == ["video.mp4"]


@pytest.mark.parametrize("env_id", ["HalfCheetah-v5", "Hopper-v5", "InvertedPendulum-v5"])
def test_the_robot_is_in_view_lit_and_moves(env_id: str, tmp_path: Path) -> None:
    from PIL import Image

    trajectory = load_check_trajectories(env_id)["random"][0]
    report = render_video(
        trajectory, tmp_path / "v.mp4", RenderOptions(width=240, height=240, stills=3), stills=tmp_path
    )
    pictures = [np.asarray(Image.open(path)).astype(int) for path in report.stills]
    assert [path.name for path in report.stills] == ["0000.png", "0001.png", "0002.png"]
    for picture in pictures:
        # The floor and the sky are grey; the robots are not.
        coloured = np.ptp(picture, axis=2) > 40
        rows, columns = np.nonzero(coloured)
        assert 0.01 < coloured.mean() < 0.5
        assert 40 < columns.mean() < 200
        assert 40 < rows.mean() < 220
        assert picture[coloured].mean() > 40
    assert (np.abs(pictures[0] - pictures[-1]) > 30).mean() > 0.005


def test_a_robot_far_from_its_start_is_on_a_visible_floor() -> None:
    """Stock floors end after 40 m, and HalfCheetah's stock camera stands still."""
    with Stage("HalfCheetah-v5", width=160, height=160) as stage:
        here, there = np.zeros(9), np.zeros(9)
        there[0] = 400.0
        near, far = stage.draw(here).astype(int), stage.draw(there).astype(int)
    # 400 m is a whole number of the floor's 2 m periods, so the pictures are the same.
    assert (np.abs(near - far) > 24).mean() < 0.02


def test_the_floor_shows_motion() -> None:
    with Stage("HalfCheetah-v5", width=160, height=160) as stage:
        here, there = np.zeros(9), np.zeros(9)
        there[0] = 1.0
        first, second = stage.draw(here).astype(int), stage.draw(there).astype(int)
    assert (np.abs(first - second) > 24).mean() > 0.2


def test_a_high_jump_stays_in_the_image() -> None:
    with Stage("HalfCheetah-v5", width=160, height=160) as stage:
        qpos = np.zeros(9)
        qpos[1] = 6.0
        picture = stage.draw(qpos).astype(int)
    assert (np.ptp(picture, axis=2) > 40).mean() > 0.005


@pytest.mark.parametrize("env_id", ["HalfCheetah-v5", "Hopper-v5", "Walker2d-v5", "Ant-v5", "Humanoid-v5"])
@pytest.mark.parametrize("rise", [0.0, 0.2, 0.4, 0.8, 1.6])
def test_a_jumping_robot_is_completely_visible_below_the_text(env_id: str, rise: float) -> None:
    text = np.full((480, 480, 3), 255, np.uint8)
    Overlay(Readings(np.zeros(1), speed=None, total=None), width=480, height=480).draw(text, 0.0)
    with Stage(env_id, width=480, height=480) as stage:
        qpos = stage.model.qpos0.copy()
        height = 1 if stage.model.joint(1).name == "rootz" else 2
        qpos[height] += rise
        stage.draw(qpos)
        rows = np.flatnonzero(stage.robot_mask().any(axis=1))
    assert rows[0] > np.flatnonzero(text[:, -1, 0] < 255)[-1] > 0 and rows[-1] < 479


def test_times_between_two_states_are_interpolated(cheetah: Trajectory) -> None:
    with Stage("HalfCheetah-v5", width=64, height=64) as stage:
        first, second = cheetah.qpos[3], cheetah.qpos[4]
        assert np.allclose(stage.between(first, second, 0.25), 0.75 * first + 0.25 * second)
        assert (stage.between(first, second, 0.0) == first).all()


def test_a_named_camera_is_used_and_an_unknown_one_refused(cheetah: Trajectory, tmp_path: Path) -> None:
    short = RenderOptions(width=64, height=64, end=0.1, camera="track")
    assert render_video(cheetah, tmp_path / "v.mp4", short).frames == 4
    with pytest.raises(InvalidArgument, match=r"camera: .*got 'front'.; expected a camera of the model \(track\)"):
        render_video(cheetah, tmp_path / "w.mp4", RenderOptions(camera="front"))
    assert not (tmp_path / "w.mp4").exists()


def test_states_of_another_model_or_not_finite_are_refused(cheetah: Trajectory, tmp_path: Path) -> None:
    facts = vars(cheetah)
    other = Trajectory(**{**facts, "environment": "Hopper-v5"})
    with pytest.raises(InvalidArgument, match=r"trajectory.qpos: .*got .* expected \(T\+1, 6\)"):
        render_video(other, tmp_path / "v.mp4")
    qpos = cheetah.qpos.copy()
    qpos[7, 2] = np.nan
    with pytest.raises(InvalidArgument, match="after step 7 is not finite"):
        render_video(Trajectory(**{**facts, "qpos": qpos}), tmp_path / "v.mp4")
    for flat in ("CartPole-v1", "Nim-v0", "MountainCar-v0"):
        with pytest.raises(
            InvalidArgument, match=rf"environment: .*{flat}.* expected an environment simulated by MuJoCo"
        ):
            render_video(Trajectory(**{**facts, "environment": flat}), tmp_path / "v.mp4")
    with pytest.raises(NotFound, match="NoSuchRobot-v9"):
        render_video(Trajectory(**{**facts, "environment": "NoSuchRobot-v9"}), tmp_path / "v.mp4")
    assert list(tmp_path.iterdir()) == []


def test_an_error_while_writing_leaves_no_file(
    cheetah: Trajectory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn = []
    draw = Stage.draw

    def fail(self: Stage, qpos: np.ndarray) -> np.ndarray:
        drawn.append(qpos)
        # Late enough that the encoder has begun to write.
        if len(drawn) == 80:
            raise InvalidArgument("broken")
        return draw(self, qpos)

    monkeypatch.setattr(Stage, "draw", fail)
    with pytest.raises(InvalidArgument, match="broken"):
        render_video(cheetah, tmp_path / "v.mp4", RenderOptions(width=64, height=64, fps=60))
    assert list(tmp_path.iterdir()) == []


def test_missing_egl_is_reported_with_the_command_that_installs_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("__EGL_VENDOR_LIBRARY_DIRS", str(tmp_path))  # a machine without any driver
    fault = probe_egl()
    assert fault is not None
    assert EGL_INSTALL_COMMAND in fault


def test_missing_egl_is_a_clear_error_in_process(
    monkeypatch: pytest.MonkeyPatch, cheetah: Trajectory, tmp_path: Path
) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "mujoco.egl", None)
    with pytest.raises(FailedPrecondition, match="apt-get install libegl1") as caught:
        render_video(cheetah, tmp_path / "v.mp4")
    assert caught.value.reason == "EGL_MISSING"


def test_a_packs_cart_pole_moves_to_the_right_where_its_position_grows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(registry.VARIABLE, str(tmp_path))
    write_pack(tmp_path)
    columns = []
    with Stage(CART_POLE, width=240, height=240) as stage:
        for place in (-3.0, 0.0, 3.0):  # episodes end beyond
            image = stage.draw(np.array([place, 0.0])).astype(int)
            pole = (image[:, :, 0] - image[:, :, 2] > 60) & stage.robot_mask()
            assert pole.sum() > 20
            columns.append(float(np.flatnonzero(pole.any(axis=0)).mean()))
    assert columns[1] == pytest.approx(120, abs=3)
    assert 5 < columns[0] < 60 and 180 < columns[2] < 235
