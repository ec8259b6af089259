"""Recorded episodes: reference rollouts, files, time reversal, the shipped check episodes."""

from __future__ import annotations

import io
import json
import zipfile
from pathlib import Path

import gymnasium
import numpy as np
import pytest
from dressage.envs import (
    ENVIRONMENT_IDS,
    PROGRAM_ENVIRONMENT_IDS,
    EnvOptions,
    Trajectory,
    load_card,
    load_check_trajectories,
    reference,
)
from dressage.envs.trajectory import CHECK_KINDS
from dressage.errors import InvalidArgument, NotFound
from hypothesis import given, settings
from hypothesis import strategies as st

RECORDED = [env_id for env_id in ENVIRONMENT_IDS if env_id not in PROGRAM_ENVIRONMENT_IDS]
"""Environments with check episodes: programs perceive no state."""


@pytest.fixture(scope="module")
def episode() -> Trajectory:
    policy = reference.untrained_policy("Hopper-v5", 1)
    return reference.rollout(policy, "Hopper-v5", [3], EnvOptions(max_episode_steps=40))[0]


def test_a_rollout_is_the_stock_episode() -> None:
    policy = reference.untrained_policy("Hopper-v5", 1)
    (recorded,) = reference.rollout(policy, "Hopper-v5", [9])
    env = gymnasium.make("Hopper-v5")
    observation, _ = env.reset(seed=9)
    rewards, observations, done = [], [observation], False
    while not done:
        observation, reward, terminated, truncated, _ = env.step(policy(observation))
        rewards.append(reward)
        observations.append(observation)
        done = terminated or truncated
    assert np.array_equal(recorded.reward, rewards)
    assert np.array_equal(recorded.observation, observations)
    assert (recorded.terminated, recorded.truncated) == (terminated, truncated)
    assert recorded.num_steps == len(rewards)
    assert np.array_equal(recorded.qpos[-1], env.unwrapped.data.qpos)


def test_rollouts_are_deterministic_and_independent_of_their_order() -> None:
    policy = reference.untrained_policy("HalfCheetah-v5", 1)
    short = EnvOptions(max_episode_steps=30)
    one, two = reference.rollout(policy, "HalfCheetah-v5", [1, 2], short)
    (again,) = reference.rollout(policy, "HalfCheetah-v5", [2], short)
    assert np.array_equal(two.qpos, again.qpos)
    assert not np.array_equal(one.qpos, two.qpos)
    assert two.truncated
    assert not two.terminated


def test_batched_rollouts_equal_single_ones_up_to_rounding_of_the_policy() -> None:
    policy = reference.untrained_policy("Hopper-v5", 2)
    single = reference.rollout(policy, "Hopper-v5", [1, 2, 3])
    together = reference.rollout(policy, "Hopper-v5", [1, 2, 3], batched=True)
    assert [episode.seed for episode in together] == [1, 2, 3]
    for one, other in zip(single, together, strict=True):
        assert one.num_steps == other.num_steps
        np.testing.assert_allclose(one.qpos, other.qpos, atol=1e-5)


def test_bad_actions_and_environments_are_named() -> None:
    with pytest.raises(InvalidArgument, match="6 finite numbers at step 0"):
        reference.rollout(lambda observation: np.full(6, np.nan), "HalfCheetah-v5", [1])
    with pytest.raises(InvalidArgument, match="action"):
        reference.rollout(lambda observation: np.zeros(2), "HalfCheetah-v5", [1])
    with pytest.raises(NotFound):
        reference.rollout(lambda observation: observation, "Dog-v5", [1])


@pytest.mark.parametrize("compress", [False, True])
def test_files_keep_everything(episode: Trajectory, tmp_path: Path, compress: bool) -> None:
    path = tmp_path / "episode.npz"
    episode.save(path, compress=compress)
    assert [file.name for file in tmp_path.iterdir()] == ["episode.npz"]
    loaded = Trajectory.load(path)
    assert tuple(loaded.fields) == load_card("Hopper-v5").field_names
    for name, column in episode.fields.items():
        assert loaded.fields[name].dtype == np.float32
        assert np.array_equal(loaded.fields[name], column.astype(np.float32))
    assert np.array_equal(loaded.qpos, episode.qpos)
    assert np.array_equal(loaded.qvel, episode.qvel)
    assert np.array_equal(loaded.action, episode.action.astype(np.float32))
    assert loaded.metadata == episode.metadata
    assert (loaded.environment, loaded.seed) == ("Hopper-v5", 3)
    assert (loaded.terminated, loaded.truncated) == (episode.terminated, episode.truncated)
    assert np.array_equal(loaded.x_velocity, loaded.fields["x_velocity"])


def test_a_failed_save_leaves_nothing_behind(episode: Trajectory, tmp_path: Path) -> None:
    broken = Trajectory(**{**vars(episode), "metadata": {"x": float("nan")}})
    with pytest.raises(ValueError, match="Out of range"):
        broken.save(tmp_path / "episode.npz")
    assert list(tmp_path.iterdir()) == []


def test_bad_files_are_refused(episode: Trajectory, tmp_path: Path) -> None:
    path = tmp_path / "episode.npz"
    episode.save(path)
    with np.load(path) as file:
        arrays = dict(file)
    schema = json.loads(arrays["schema"].tobytes())

    def write(**changes: np.ndarray) -> None:
        np.savez(path, **{name: array for name, array in {**arrays, **changes}.items() if array is not None})

    def schema_with(**changes: object) -> np.ndarray:
        return np.frombuffer(json.dumps({**schema, **changes}).encode(), dtype=np.uint8)

    for changes, message in (
        ({"reward": arrays["reward"][:-1]}, "'reward'"),
        ({"qpos": None}, "'qpos' is missing"),
        ({"field/pitch": None}, "'field/pitch' is missing"),
        ({"action": arrays["action"].astype(np.int64)}, "'action'"),
        ({"schema": None}, "schema"),
        ({"schema": schema_with(format="other")}, "format"),
        ({"schema": schema_with(num_steps="many")}, "num_steps"),
        ({"schema": schema_with(fields=[1])}, "fields"),
        ({"reward": np.array([object()] * schema["num_steps"])}, "not readable"),
    ):
        write(**changes)
        with pytest.raises(InvalidArgument, match=message):
            Trajectory.load(path)


@given(content=st.binary(max_size=300), cut=st.integers(0, 5000))
@settings(max_examples=30, deadline=None)
def test_garbage_and_torn_files_are_refused(content: bytes, cut: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("garbage") / "x.npz"
    path.write_bytes(content)
    with pytest.raises(InvalidArgument, match=r"x\.npz is not a trajectory file"):
        Trajectory.load(path)
    load_check_trajectories("InvertedPendulum-v5")["random"][0].save(path)
    path.write_bytes(path.read_bytes()[:cut])
    with pytest.raises(InvalidArgument):
        Trajectory.load(path)


def test_a_header_that_claims_a_huge_array_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "huge.npz"
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "<f8", "fortran_order": False, "shape": (1 << 50,)})
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("reward.npy", header.getvalue())
    with pytest.raises(InvalidArgument, match="not readable"):
        Trajectory.load(path)


def test_a_file_that_unpacks_to_too_much_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dressage.envs.trajectory._MAX_BYTES", 1 << 20)
    path = tmp_path / "bomb.npz"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive, archive.open("reward.npy", "w") as entry:
        entry.write(bytes(2 << 20))
    with pytest.raises(InvalidArgument, match="unpacks to"):
        Trajectory.load(path)


@pytest.mark.parametrize("env_id", RECORDED)
def test_time_reversal_turns_motion_round(env_id: str) -> None:
    forward = load_check_trajectories(env_id)["random"][0]
    backward = forward.reverse_time()
    assert np.array_equal(backward.time, forward.time)
    assert np.array_equal(backward.action, forward.action[::-1])
    assert np.array_equal(backward.qvel, -forward.qvel[::-1])
    for field in load_card(env_id).fields:
        column = backward.fields[field.name]
        sign = -1 if field.unit.endswith(("/s", "/step")) else 1
        if field.name not in ("time", "observation"):
            assert np.array_equal(column, sign * forward.fields[field.name][::-1]), field.name
    # The observation of the reversed motion is that of the reversed state.
    from dressage.envs.tasks import task

    if env_id in ("HalfCheetah-v5", "Hopper-v5", "InvertedPendulum-v5", "Walker2d-v5", "Swimmer-v5"):
        raw = {"qpos": backward.qpos, "qvel": backward.qvel}
        np.testing.assert_allclose(backward.observation, task(env_id).observation(raw), rtol=1e-6, atol=1e-6)
    twice = backward.reverse_time()
    assert all(np.array_equal(twice.fields[name], column) for name, column in forward.fields.items())


@pytest.mark.parametrize("env_id", RECORDED)
def test_shipped_check_episodes_are_complete_and_whole(env_id: str) -> None:
    card = load_card(env_id)
    episodes = load_check_trajectories(env_id)
    assert tuple(episodes) == CHECK_KINDS
    for kind, recorded in episodes.items():
        assert len(recorded) == (2 if "reward" in card.methods else 1)
        for episode in recorded:
            assert tuple(episode.fields) == card.field_names
            assert all(np.isfinite(column).all() for column in episode.fields.values())
            assert 1 <= episode.num_steps <= 150
            assert episode.terminated or episode.truncated
            if load_card(env_id).action_kind == "discrete":
                assert set(np.unique(episode.action)) <= set(range(load_card(env_id).num_actions))
            elif kind == "motionless":
                assert not episode.action.any()
            else:
                assert episode.action.any()


def test_a_field_is_an_attribute_and_an_unknown_one_names_near_matches(episode: Trajectory) -> None:
    assert episode.z_position.shape == (episode.num_steps + 1,)
    with pytest.raises(AttributeError, match=r"the trajectory has no field 'z_positon'; near matches: z_position"):
        _ = episode.z_positon
    assert episode.stock_return == pytest.approx(episode.reward.sum())
