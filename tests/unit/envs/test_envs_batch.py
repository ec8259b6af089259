"""The batch as trainers use it: snapshots, divergence, validation, states that stay valid."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dressage.envs import (
    REWARD_ENVIRONMENT_IDS,
    BatchEnv,
    BatchStep,
    EnvOptions,
    State,
    load_card,
    make_batch,
    random_state,
)
from dressage.envs.engine import DataEngine, NativeEngine
from dressage.errors import FailedPrecondition, InvalidArgument, NotFound
from hypothesis import given
from hypothesis import strategies as st


@pytest.fixture(autouse=True)
def _in_scratch_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # MuJoCo writes its warnings into the working directory


def _batch(env_id: str = "Hopper-v5", count: int = 4, threads: int = 2, **options: Any) -> BatchEnv:
    batch = make_batch(env_id, count, num_threads=threads, options=EnvOptions(**options))
    batch.reset(list(range(100, 100 + count)))
    return batch


def _actions(batch: BatchEnv, steps: int, seed: int = 0) -> np.ndarray:
    if batch.num_actions:
        return np.random.default_rng(seed).integers(batch.num_actions, size=(steps, batch.num_envs))
    shape = (steps, batch.num_envs, batch.action_size)
    return np.random.default_rng(seed).uniform(batch.action_low, batch.action_high, size=shape).astype(np.float32)


def _same(one: BatchStep, other: BatchStep) -> None:
    for name in ("observation", "final_observation", "reward", "terminated", "truncated"):
        assert np.array_equal(getattr(one, name), getattr(other, name)), name
    for before, after in ((one.state, other.state), (one.next_state, other.next_state)):
        for name, array in before.fields.items():
            assert np.array_equal(array, after.fields[name]), name


@pytest.mark.parametrize("env_id", REWARD_ENVIRONMENT_IDS)
def test_a_snapshot_restored_into_a_new_batch_goes_on_to_the_bit(env_id: str) -> None:
    limit = 50
    batch = _batch(env_id, max_episode_steps=limit)
    actions = _actions(batch, 130)
    for action in actions[:30]:
        batch.step(action)
    snapshot = batch.snapshot()
    assert all(isinstance(value, np.ndarray) and value.dtype.kind in "fiu" for value in snapshot.values())
    expected = [batch.step(action) for action in actions[30:]]
    assert any(step.truncated.any() or step.terminated.any() for step in expected)
    other = make_batch(env_id, 4, num_threads=1, options=EnvOptions(max_episode_steps=limit))
    other.restore(snapshot)
    for name, array in other.state().fields.items():
        assert np.array_equal(array, expected[0].state.fields[name]), name
    for action, step in zip(actions[30:], expected, strict=True):
        _same(other.step(action), step)


def test_a_snapshot_of_another_size_or_environment_is_refused() -> None:
    snapshot = _batch().snapshot()
    with pytest.raises(InvalidArgument, match="shape"):
        _batch(count=3).restore(snapshot)
    with pytest.raises(InvalidArgument, match=r"snapshot\.environment"):
        _batch("HalfCheetah-v5").restore(snapshot)
    del snapshot["elapsed_steps"]
    with pytest.raises(InvalidArgument, match="elapsed_steps"):
        _batch().restore(snapshot)


def test_the_number_of_threads_changes_nothing() -> None:
    one, three = _batch("HalfCheetah-v5", threads=1), _batch("HalfCheetah-v5", threads=3)
    for action in _actions(one, 40):
        _same(one.step(action), three.step(action))


def test_a_row_does_not_depend_on_its_neighbours() -> None:
    together = _batch("Hopper-v5", count=4)
    alone = make_batch("Hopper-v5", 1, num_threads=1)
    alone.reset([102])
    for action in _actions(together, 120):
        step, single = together.step(action), alone.step(action[2:3])
        assert np.array_equal(step.observation[2], single.observation[0])
        assert step.reward[2] == single.reward[0]


def test_states_stay_valid_over_later_steps_and_resets() -> None:
    batch = _batch(max_episode_steps=7)
    kept: list[tuple[State, np.ndarray, np.ndarray]] = []
    for action in _actions(batch, 30):
        step = batch.step(action)
        kept.append((step.next_state, step.final_observation.copy(), step.next_state.z_position.copy()))
    for state, observation, height in kept:
        assert np.array_equal(state.observation, observation)
        assert np.array_equal(state.z_position, height)


def test_the_state_after_an_end_is_that_before_auto_reset() -> None:
    batch = _batch(max_episode_steps=5)
    step = batch.step(_actions(batch, 1)[0])
    for action in _actions(batch, 4, seed=1):
        last, step = step, batch.step(action)
        assert np.array_equal(step.state.observation, last.observation)
    assert step.truncated.all()
    np.testing.assert_allclose(step.next_state.time, 5 * batch.card.time_step)
    assert (batch.state().time == 0).all()
    assert not np.array_equal(step.observation, step.final_observation)


def _simulated(batch: Any, name: str, row: int) -> np.ndarray:
    """The simulator's own array of one row, whichever engine the batch has."""
    engine = batch._engine
    array = getattr(engine._datas[row], name) if isinstance(engine, DataEngine) else engine.live[name][row]
    return np.asarray(array)


@pytest.mark.parametrize("fault", ["position", "velocity", "action"])
@pytest.mark.parametrize("env_id", ["HalfCheetah-v5", "Ant-v5"])
def test_a_diverged_row_is_truncated_counted_and_restarted_alone(env_id: str, fault: str) -> None:
    batch = make_batch(env_id, 4, num_threads=2, fields={"x_velocity", "time"})
    batch.reset([100, 101, 102, 103])
    actions = _actions(batch, 8)
    for action in actions[:5]:
        batch.step(action)
    before, seen = batch.state(), batch.snapshot()
    action = actions[5].copy()
    if fault == "position":
        _simulated(batch, "qpos", 1)[2] = np.nan
    elif fault == "velocity":
        _simulated(batch, "qvel", 1)[2] = 1e12
    else:
        action[1, 0] = np.nan
    step = batch.step(action)
    assert batch.divergences == 1
    assert step.truncated.tolist() == [False, True, False, False]
    assert not step.terminated.any()
    assert step.reward[1] == 0
    assert np.isfinite(step.reward).all()
    assert np.isfinite(step.final_observation).all()
    assert np.isfinite(step.observation).all()
    assert step.next_state.x_velocity[1] == before.x_velocity[1]
    assert batch.state().time[1] == 0
    for action in actions[6:]:
        assert not batch.step(action).truncated.any()
    assert batch.divergences == 1
    batch.restore(seen)
    assert batch.divergences == 0


@pytest.mark.parametrize(("env_id", "field"), [("HalfCheetah-v5", "contact_ffoot"), ("Hopper-v5", "contact_foot")])
def test_contact_forces_cost_the_slower_engine_only_where_they_are_read(env_id: str, field: str) -> None:
    plain, forces = (
        make_batch(env_id, 3, num_threads=2, fields={"x_velocity", name}) for name in ("x_position", field)
    )
    engines = [batch._engine for batch in (plain, forces)]  # type: ignore[attr-defined]
    assert [type(engine) for engine in engines] == [NativeEngine, DataEngine]
    assert np.array_equal(plain.reset([1, 2, 3]), forces.reset([1, 2, 3]))
    pressed = 0.0
    for action in _actions(plain, 60):
        one, other = plain.step(action), forces.step(action)
        assert np.array_equal(one.observation, other.observation)
        assert np.array_equal(one.reward, other.reward)
        pressed = max(pressed, float(other.next_state.fields[field].max()))
    assert pressed > 10


def test_only_the_fields_asked_for_are_there() -> None:
    batch = make_batch("HalfCheetah-v5", 2, num_threads=1, fields={"x_velocity"})
    batch.reset([1, 2])
    assert list(batch.state().fields) == ["x_velocity"]
    full = make_batch("HalfCheetah-v5", 2, num_threads=1)
    full.reset([1, 2])
    action = np.ones((2, 6), dtype=np.float32)
    assert np.array_equal(full.step(action).next_state.x_velocity, batch.step(action).next_state.x_velocity)


def test_bad_arguments_are_named() -> None:
    with pytest.raises(NotFound, match=r"known environments: HalfCheetah-v5, "):
        make_batch("HalfCheeta-v5", 1, num_threads=1)
    with pytest.raises(InvalidArgument, match=r"num_envs: .*got 0"):
        make_batch("Hopper-v5", 0, num_threads=1)
    with pytest.raises(InvalidArgument, match=r"num_threads: .*got 'two'"):
        make_batch("Hopper-v5", 1, num_threads="two")  # type: ignore[arg-type]
    with pytest.raises(NotFound, match="x_velocity"):
        make_batch("Hopper-v5", 1, num_threads=1, fields=["x_velocty"])
    with pytest.raises(InvalidArgument, match=r"options\.terminate_when_unhealthy.*HalfCheetah-v5, which has max_ep"):
        make_batch("HalfCheetah-v5", 1, num_threads=1, options=EnvOptions(terminate_when_unhealthy=False))
    batch = _batch()
    with pytest.raises(InvalidArgument, match=r"actions: .*\(4, 3\)"):
        batch.step(np.zeros((3, 4)))
    with pytest.raises(InvalidArgument, match="seeds"):
        batch.reset([1, 2])
    with pytest.raises(InvalidArgument, match=r"seeds: .*got -1"):
        batch.reset([1, 2, 3, -1])
    with pytest.raises(FailedPrecondition, match="reset"):
        make_batch("Hopper-v5", 1, num_threads=1).step(np.zeros((1, 3)))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("max_episode_steps", 0),
        ("max_episode_steps", -5),
        ("max_episode_steps", 2.5),
        ("max_episode_steps", True),
        ("reset_noise_scale", -0.1),
        ("reset_noise_scale", float("nan")),
        ("reset_noise_scale", "big"),
        ("terminate_when_unhealthy", 1),
        ("frame_skip", 3),
    ],
)
def test_bad_options_are_named(name: str, value: object) -> None:
    with pytest.raises(InvalidArgument, match=rf"options\.{name}: .*got"):
        EnvOptions.from_dict({name: value})


def test_action_bounds_are_those_of_the_card() -> None:
    batch = _batch("InvertedPendulum-v5")
    part = load_card("InvertedPendulum-v5").action[0]
    assert (batch.action_low[0], batch.action_high[0]) == (part.low, part.high) == (-3, 3)


@given(seed=st.integers(0, 2**70), small=st.integers(0, 3), large=st.integers(0, 3))
def test_packed_random_streams_go_on_where_they_stood(seed: int, small: int, large: int) -> None:
    stream = random_state.generator(seed)
    stream.integers(0, 100, size=small, dtype=np.uint32)  # leaves half a draw buffered when odd
    stream.standard_normal(large)
    (copy,) = random_state.unpack(random_state.pack([stream]))
    draws = [one.integers(0, 2**31, size=3, dtype=np.uint32) for one in (copy, stream)]
    assert np.array_equal(*draws)
    assert np.array_equal(copy.standard_normal(5), stream.standard_normal(5))
