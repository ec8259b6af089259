"""Drawing by the camera of a pack's simulator: the protocol with its process; the images are computed by hand."""

from __future__ import annotations

import importlib.util
import json
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import av
import mujoco
import numpy as np
import pytest
from dressage.envs.packs import models, process, registry
from dressage.envs.packs.batched import drawing
from dressage.envs.trajectory import Trajectory
from dressage.errors import FailedPrecondition, InvalidArgument, Unavailable
from dressage.sandbox.pipe import Channel
from dressage_renderer import simulated, stage
from dressage_renderer.frames import sample_frames
from dressage_renderer.options import RenderOptions, SamplingOptions
from dressage_renderer.video import render_video
from hypothesis import given
from hypothesis import strategies as st

CART_POLE = "Isaac-Cartpole-Direct"
BASE = 7


class Painter:
    """A camera whose image has the brightness of the first position."""

    def __init__(self, env_id: str, *, width: int, height: int, free_base: bool = False) -> None:
        self.free_base, self.position_size = free_base, 9 if free_base else 2
        self._shape = (height, width, 3)

    def draw(self, positions: Any, *, aim: bool = True) -> Any:
        return np.full(self._shape, int(positions[0]), np.uint8)


@pytest.fixture
def simulator(monkeypatch: pytest.MonkeyPatch) -> Callable[[Any], None]:
    """Takes what serves a channel in place of the simulator's process."""

    def use(serve: Callable[[Channel], None]) -> None:
        @contextmanager
        def started(name: str, target: str, *, with_gpu: bool) -> Iterator[Any]:
            assert (name, target, with_gpu) == ("isaaclab", "dressage.envs.packs.batched.drawing:serve", True)
            to_read, to_write = os.pipe(), os.pipe()
            theirs, ours = Channel(to_read[0], to_write[1]), Channel(to_write[0], to_read[1])
            thread = threading.Thread(target=serve, args=(theirs,), daemon=True)
            thread.start()
            yield SimpleNamespace(channel=ours, kill=lambda: SimpleNamespace(stderr_tail="no\nout of paint\n"))
            ours.close()
            thread.join(10)
            theirs.close()

        monkeypatch.setattr(simulated, "pack_process", started)

    use(lambda channel: drawing.serve_with(Painter, channel))
    return use


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of an installed pack without a MuJoCo model."""
    monkeypatch.setenv(registry.VARIABLE, str(tmp_path))
    folder = tmp_path / "isaaclab"
    (folder / registry.PACKAGES).mkdir(parents=True)
    (folder / registry.MARKER).write_text(json.dumps(registry.PACKS["isaaclab"].identity))
    return folder


def episode(steps: int) -> Trajectory:
    """An episode whose first position rises by 10 a step."""
    values = np.arange(steps + 1.0)
    return Trajectory(
        environment=CART_POLE,
        seed=0,
        fields={"time": values * 0.1},
        action=np.zeros((steps, 1)),
        reward=np.zeros(steps),
        terminated=False,
        truncated=True,
        qpos=np.column_stack([10 * values, 0 * values]),
        qvel=np.zeros((steps + 1, 2)),
        metadata={},
    )


def test_a_video_is_drawn_by_the_simulator(simulator: Any, installed: Path, tmp_path: Path) -> None:
    options = RenderOptions(width=64, height=64, fps=10.0, overlay=False)
    report = render_video(episode(20), tmp_path / "video.mp4", options)
    with av.open(str(tmp_path / "video.mp4")) as container:
        shown = [frame.to_ndarray(format="rgb24").mean() for frame in container.decode(video=0)]
    assert report.frames == len(shown) == 21
    np.testing.assert_allclose(shown, 10.0 * np.arange(21), atol=4)  # the codec rounds


def test_sampled_frames_have_no_motion_trail(simulator: Any, installed: Path, tmp_path: Path) -> None:
    from PIL import Image

    options = SamplingOptions(width=64, height=64, fps=5.0, motion_trail=True, overlay=False)
    sampled = sample_frames(episode(10), tmp_path, options)
    for time, path in zip(sampled.times, sampled.frames, strict=True):
        assert np.unique(np.asarray(Image.open(path))).tolist() == [round(100 * time)]


def test_mujoco_draws_where_there_is_a_model(installed: Path) -> None:
    assert models.drawn_by_simulator(CART_POLE)
    target = installed / models.model_path(CART_POLE)
    target.parent.mkdir()
    target.write_text("<mujoco/>")
    assert not models.drawn_by_simulator(CART_POLE)
    assert not models.drawn_by_simulator("Hopper-v5")
    assert not models.drawn_by_simulator("Mjlab-Velocity-Flat-Unitree-Go1")


def test_a_missing_pack_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(registry.VARIABLE, str(tmp_path))
    with pytest.raises(FailedPrecondition, match="dressage envs install isaaclab"):
        stage.open_stage(CART_POLE, width=64, height=64)


def test_a_renderer_has_no_trainer_for_the_packs_process(installed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(process, "_interpreter", lambda version: ("python", ()))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "dressage_trainer" else find(name))
    links = Path(process.import_path("isaaclab")[-1])
    assert [link.name for link in links.iterdir()] == ["dressage"] and (links / "dressage" / "errors.py").is_file()
    assert links.joinpath("dressage").resolve() in process.readable("isaaclab")


def test_a_camera_of_the_model_is_refused(simulator: Any, installed: Path) -> None:
    with pytest.raises(InvalidArgument, match=r"camera.*'side'.*the simulator's camera draws"):
        stage.open_stage(CART_POLE, width=64, height=64, camera="side")


@pytest.mark.parametrize(
    "reply",
    [
        {"image": np.zeros((64, 64), np.uint8)},
        {"image": np.zeros((64, 32, 3), np.uint8)},
        {"image": np.zeros((64, 64, 3))},
        {"image": "black"},
        {},
    ],
    ids=["grey", "narrow", "float", "text", "nothing"],
)
def test_a_malformed_image_is_a_fault_of_the_simulator(simulator: Any, installed: Path, reply: dict[str, Any]) -> None:
    def serve(channel: Channel) -> None:
        channel.recv(timeout=None)
        channel.send({"position_size": 2, "free_base": False})
        channel.recv(timeout=None)
        channel.send(reply)

    simulator(serve)
    with (
        stage.open_stage(CART_POLE, width=64, height=64) as opened,
        pytest.raises(Unavailable, match="pack isaaclab cannot draw it: a malformed image") as caught,
    ):
        opened.draw(np.zeros(2))
    assert caught.value.reason == "SIMULATOR_FAILED"


@pytest.mark.parametrize(
    "reply",
    [{"position_size": 2}, {"position_size": 0, "free_base": False}, {"position_size": 2, "free_base": True}],
    ids=["incomplete", "nothing to draw", "no room for a base"],
)
def test_a_malformed_beginning_is_a_fault(simulator: Any, installed: Path, reply: dict[str, Any]) -> None:
    def serve(channel: Channel) -> None:
        channel.recv(timeout=None)
        channel.send(reply)

    simulator(serve)
    with pytest.raises(Unavailable, match="malformed reply"):
        stage.open_stage(CART_POLE, width=64, height=64)


def test_a_simulator_that_ends_is_named_with_its_last_line(simulator: Any, installed: Path) -> None:
    simulator(lambda channel: channel.close())
    with pytest.raises(Unavailable, match=f"{CART_POLE}: .* cannot draw it: out of paint"):
        stage.open_stage(CART_POLE, width=64, height=64)


@given(seed=st.integers(0, 2**32 - 1), share=st.floats(0, 1), turn=st.floats(0, 0.5), opposite=st.booleans())
def test_states_between_two_are_those_of_mujoco(seed: int, share: float, turn: float, opposite: bool) -> None:
    """A free base with two joints; rotations of up to half a radian, more than robots turn in one step."""
    model = mujoco.MjModel.from_xml_string(
        "<mujoco><worldbody><body><freejoint/><geom size='1'/><body><joint/><geom size='1'/><body><joint/><geom size='1'/>"
        "</body></body></body></worldbody></mujoco>"
    )
    rng = np.random.default_rng(seed)
    first, second = rng.normal(size=9), rng.normal(size=9)
    first[3:BASE] /= np.linalg.norm(first[3:BASE])
    axis = rng.normal(size=3)
    change = np.zeros(model.nv)
    change[3:6] = turn * axis / np.linalg.norm(axis)
    turned = first.copy()
    mujoco.mj_integratePos(model, turned, change, 1.0)
    second[3:BASE] = turned[3:BASE]
    expected, velocity = first.copy(), np.zeros(model.nv)
    mujoco.mj_differentiatePos(model, velocity, 1.0, first, second)
    mujoco.mj_integratePos(model, expected, velocity, share)
    if opposite:
        second[3:BASE] *= -1
    drawn = simulated.SimulatorStage.__new__(simulated.SimulatorStage)
    drawn._free_base = True
    np.testing.assert_allclose(drawn.between(first, second, share), expected, atol=2e-3)
