"""Angles of a robot that moves freely: they count full turns, and always describe the present orientation."""

from __future__ import annotations

import math
from itertools import pairwise

import mujoco
import numpy as np
import pytest
from dressage.envs import EnvOptions, load_card, make_batch
from dressage.envs.catalogue import catalogue
from dressage.envs.free_body import euler_angles, nearest_angles, rotation_between
from dressage.envs.layout import layout_of
from dressage.envs.loading import load_model
from dressage.envs.tasks import task
from hypothesis import given
from hypothesis import strategies as st

AXES = {"roll": (1.0, 0.0, 0.0), "pitch": (0.0, -1.0, 0.0), "yaw": (0.0, 0.0, 1.0)}
angles = st.floats(-3, 3)


def _quaternion(axis: tuple[float, float, float], angle: float) -> np.ndarray:
    quaternion = np.zeros(4)
    mujoco.mju_axisAngle2Quat(quaternion, np.array(axis), angle)
    return quaternion


def _follow(path: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Euler angles and turned angles at the end of a path of orientations."""
    euler, turned = euler_angles(path[0][None]), np.zeros((1, 3))
    for before, after in pairwise(path):
        euler = nearest_angles(euler, after[None])
        turned = turned + rotation_between(before[None], after[None]) * (1, -1, 1)
    return euler[0], turned[0]


@pytest.mark.parametrize(("name", "index"), [("roll", 0), ("pitch", 1), ("yaw", 2)])
@pytest.mark.parametrize("turns", [1.0, -1.0, 2.5])
def test_a_turn_about_one_axis_counts_on_in_that_angle_alone(name: str, index: int, turns: float) -> None:
    total = turns * 2 * math.pi
    path = [_quaternion(AXES[name], share * total) for share in np.linspace(0, 1, 60)]
    for angles in _follow(path):
        expected = np.zeros(3)
        expected[index] = total
        np.testing.assert_allclose(angles, expected, atol=1e-9)


def test_a_slightly_skewed_backflip_is_still_a_backflip() -> None:
    tilt = _quaternion((1.0, 0.0, 0.0), 0.05)
    path = []
    for share in np.linspace(0, 1, 40):
        flipped = np.zeros(4)
        mujoco.mju_mulQuat(flipped, tilt, _quaternion(AXES["pitch"], share * 2 * math.pi))
        path.append(flipped)
    euler, turned = _follow(path)
    assert euler[1] == pytest.approx(2 * math.pi, abs=0.1)
    assert turned[1] == pytest.approx(2 * math.pi, abs=0.01)


@given(st.lists(st.tuples(angles, angles, angles), min_size=1, max_size=8))
def test_unwrapped_angles_always_describe_the_orientation(steps: list[tuple[float, float, float]]) -> None:
    path = [np.array([1.0, 0.0, 0.0, 0.0])]
    for step in steps:
        following = path[-1].copy()
        mujoco.mju_quatIntegrate(following, np.array(step), 1.0)
        path.append(following)
    roll, pitch, yaw = _follow(path)[0]
    rebuilt = np.zeros(4)
    mujoco.mju_euler2Quat(rebuilt, np.array([yaw, -pitch, roll]), "zyx")
    assert abs(rebuilt @ path[-1]) == pytest.approx(1, abs=1e-7)


@given(angles, angles, angles)
def test_rotations_between_orientations_are_mujocos(x: float, y: float, z: float) -> None:
    before, after = _quaternion((0.6, 0.0, 0.8), 1.1), np.zeros(4)
    mujoco.mju_mulQuat(after, before, _quaternion((1.0, 0.0, 0.0), 0.0))
    mujoco.mju_quatIntegrate(after, np.array([x, y, z]), 1.0)
    expected = np.zeros(3)
    mujoco.mju_subQuat(expected, after, before)
    rotation = rotation_between(before[None], after[None])[0]
    np.testing.assert_allclose(rotation, expected, atol=1e-7)


@pytest.mark.parametrize("env_id", ["Ant-v5", "Humanoid-v5", "HumanoidStandup-v5"])
def test_the_words_of_the_card_hold_on_the_live_model(env_id: str) -> None:
    """Turn the torso by each angle of the card, and see where its sides go."""
    model = load_model(catalogue()[env_id].model_file)
    data = mujoco.MjData(model)
    fields = {entry.field.name: entry for entry in task(env_id).fields(layout_of(model))}
    rises = {"roll": (0.0, 1.0, 0.0), "pitch": (1.0, 0.0, 0.0)}
    for name, axis in AXES.items():
        data.qpos[:] = model.qpos0
        data.qpos[3:7] = _quaternion(axis, 0.3)
        mujoco.mj_forward(model, data)
        entry = fields[name]
        assert entry.tracker is not None
        raw = {"qpos": data.qpos[None].copy()}
        assert entry.function(raw | {entry.tracker.name: entry.tracker.start(raw)})[0] == pytest.approx(0.3)
        rotation = data.body("torso").xmat.reshape(3, 3)
        if name in rises:
            assert (rotation @ rises[name])[2] > 0.2
        else:
            assert (rotation @ (1.0, 0.0, 0.0))[1] > 0.2  # the front has turned to the left
        data.qvel[:] = 0
        data.qvel[3:6] = np.array(axis) * 0.7
        assert fields[f"{name}_velocity"].function({"qvel": data.qvel[None]})[0] == pytest.approx(0.7)


def test_upright_follows_the_head() -> None:
    standing, lying = make_batch("Humanoid-v5", 1, num_threads=1), make_batch("HumanoidStandup-v5", 1, num_threads=1)
    for batch, upright, head in ((standing, 1.0, 1.59), (lying, 0.0, 0.1)):
        batch.reset([1])
        assert batch.state().upright[0] == pytest.approx(upright, abs=0.05)
        assert batch.state().head_height[0] == pytest.approx(head, abs=0.05)


def test_angles_start_anew_with_an_episode_and_go_on_after_a_snapshot() -> None:
    options = EnvOptions(max_episode_steps=20, terminate_when_unhealthy=False)
    batch = make_batch("Ant-v5", 2, num_threads=1, options=options)
    batch.reset([1, 2])
    rng = np.random.default_rng(0)
    for _ in range(12):
        batch.step(rng.uniform(-1, 1, (2, 8)))
    assert np.abs(batch.state().turned_yaw).max() > 0
    other = make_batch("Ant-v5", 2, num_threads=1, options=options)
    other.restore(batch.snapshot())
    for _ in range(8):
        action = rng.uniform(-1, 1, (2, 8))
        one, two = batch.step(action), other.step(action)
        assert np.array_equal(one.next_state.turned_pitch, two.next_state.turned_pitch)
        assert np.array_equal(one.next_state.roll, two.next_state.roll)
    assert one.truncated.all()
    assert (batch.state().turned_yaw == 0).all()


def test_the_legs_of_ant_are_where_the_card_says() -> None:
    model = load_model(catalogue()["Ant-v5"].model_file)
    data = mujoco.MjData(model)
    mujoco.mj_forward(model, data)
    layout = layout_of(model)
    text = load_card("Ant-v5").description
    places = {(1, 1): "front left", (-1, 1): "back left", (-1, -1): "back right", (1, -1): "front right"}
    for number, body in enumerate(("left_ankle", "right_ankle", "third_ankle", "fourth_ankle"), start=1):
        assert int(model.body(layout.bodies[body]).jntadr[0]) == model.joint(f"ankle_{number}").id
        signs = tuple(int(np.sign(value)) for value in data.xpos[layout.bodies[body], :2])
        assert f"ankle_{number} and {'body ' if number == 1 else ''}{body} at the {places[signs]}" in text
