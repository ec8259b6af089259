"""The batch of a pack's simulator: faults, restarts and last observations, with a simulator small enough to compute by hand."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from dressage.envs import EnvOptions, load_card, make_batch
from dressage.envs.cards import ActionComponent, EnvironmentCard, Field, ObservationComponent
from dressage.envs.packs.batched import stepping, tasks
from dressage.envs.packs.batched.client import PackBatch
from dressage.envs.packs.batched.protocol import Facts, Result, VisibleState
from dressage.envs.state import Array
from dressage.errors import FailedPrecondition, Unavailable
from dressage.sandbox.pipe import Channel

GO1 = "Mjlab-Velocity-Flat-Unitree-Go1"
POSITION = Field("position", (1,), "m", "position")
LIMIT = 5


class Drift:
    """Points that move by their action, end beyond 1 m, and restart at a number of the seed's stream.

    :param eager: restart ended rows within the step, as Isaac Lab does.
    """

    def __init__(self, env_id: str, *, num_envs: int, max_episode_steps: int | None, eager: bool = False) -> None:
        self.num_envs, self._limit, self._eager = num_envs, max_episode_steps, eager
        self._at, self._steps = np.zeros(num_envs), np.zeros(num_envs, int)

    def facts(self) -> Facts:
        return Facts([("place", 1)], ["move"], [POSITION], 0.1, LIMIT, ["far"], ["distance"])

    def reset(self, seed: int) -> None:
        self._rng = np.random.default_rng(seed)
        self.restart(np.arange(self.num_envs))

    def restart(self, rows: Array) -> None:
        self._at[rows], self._steps[rows] = self._rng.uniform(-0.1, 0.1, len(rows)), 0

    def step(self, actions: Array) -> Result:
        self._at = self._at + actions[:, 0]
        self._steps += 1
        with np.errstate(invalid="ignore"):
            ended, late = np.abs(self._at) > 1, self._steps >= (self._limit or LIMIT)
        state, reward = self.visible_state(), np.nan_to_num(np.abs(self._at))  # the reward hides NaN, as mjlab's does
        restarted = (ended | late) if self._eager else np.zeros(self.num_envs, bool)
        if restarted.any():
            self.restart(np.flatnonzero(restarted))
        return Result(state, reward, ended, late, restarted)

    def visible_state(self) -> VisibleState:
        return VisibleState(self._at[:, None].copy(), {"position": self._at[:, None].copy()})

    def spoil(self, row: int) -> None:
        self._at[row] = np.nan

    def close(self) -> None: ...


def small_card() -> EnvironmentCard:
    card = load_card(GO1)
    fields = (Field("observation", (1,), "mixed", "o"), card.field("time"), POSITION)
    return replace(
        card,
        fields=fields,
        observation_components=(ObservationComponent("place", "m", "place"),),
        action=(ActionComponent("move", -5.0, 5.0, "1", "move"),),
        observation_size=1,
        max_episode_steps=LIMIT,
    )


@pytest.fixture(params=[False, True], ids=["restarted by us", "restarts itself"])
def channel(request: pytest.FixtureRequest) -> Iterator[Channel]:
    to_read, to_write = os.pipe(), os.pipe()
    theirs, ours = Channel(to_read[0], to_write[1]), Channel(to_write[0], to_read[1])

    def build(env_id: str, **given: int) -> Drift:
        return Drift(env_id, **given, eager=request.param)  # type: ignore[arg-type]

    thread = threading.Thread(target=stepping.serve_with, args=(build, theirs), daemon=True)
    thread.start()
    yield ours
    ours.close()
    thread.join(10)
    theirs.close()


def batch_of(channel: Channel, rows: int = 3) -> PackBatch:
    batch = PackBatch(small_card(), rows, options=EnvOptions(), fields=None, channel=channel)
    batch.reset(range(rows))
    return batch


def test_an_ended_episode_keeps_its_last_observation(channel: Channel) -> None:
    batch = batch_of(channel)
    before = batch.state().position.copy()
    step = batch.step(np.array([[2.0], [0.1], [-2.0]]))
    assert step.terminated.tolist() == [True, False, True] and not step.truncated.any()
    np.testing.assert_allclose(step.next_state.position[:, 0], before[:, 0] + [2.0, 0.1, -2.0], atol=1e-6)
    np.testing.assert_array_equal(step.final_observation, step.next_state.position)
    assert (np.abs(step.observation[[0, 2]]) <= 0.1).all()
    np.testing.assert_array_equal(step.observation[1], step.final_observation[1])
    np.testing.assert_array_equal(step.next_state.time, [0.02, 0.02, 0.02])
    np.testing.assert_array_equal(batch.state().time, [0.0, 0.02, 0.0])
    np.testing.assert_array_equal(batch.state().position, step.observation)


def test_a_nan_is_a_fault_and_never_a_reward_of_0_that_continues(channel: Channel) -> None:
    batch = batch_of(channel)
    good = batch.state().position.copy()
    channel.send({"do": "spoil", "row": 1})
    channel.recv(timeout=10)
    step = batch.step(np.full((3, 1), 0.25))
    assert step.truncated.tolist() == [False, True, False] and not step.terminated.any()
    assert step.reward[1] == 0 and batch.divergences == 1
    np.testing.assert_array_equal(step.next_state.position[1], good[1])  # its last good state
    assert np.isfinite(step.observation).all() and abs(step.observation[1, 0]) <= 0.1
    assert not batch.step(np.zeros((3, 1))).truncated.any()


def test_an_action_that_is_not_finite_is_a_fault_of_its_row(channel: Channel) -> None:
    batch = batch_of(channel)
    step = batch.step(np.array([[0.0], [np.inf], [0.0]]))
    assert step.truncated.tolist() == [False, True, False] and batch.divergences == 1


def test_episodes_end_at_the_time_limit(channel: Channel) -> None:
    batch = batch_of(channel)
    flags = [batch.step(np.zeros((3, 1))).truncated.all() for _ in range(2 * LIMIT)]
    assert flags == ([False] * (LIMIT - 1) + [True]) * 2


def test_equal_seeds_give_equal_steps_and_a_resumed_batch_begins_anew(channel: Channel) -> None:
    batch = batch_of(channel)
    first = batch.step(np.full((3, 1), 0.1)).observation
    assert (batch.reset([7, 8, 9]) != batch.reset([0, 1, 2])).all()
    np.testing.assert_array_equal(batch.step(np.full((3, 1), 0.1)).observation, first)
    snapshot = batch.snapshot()
    batch.restore(snapshot)
    assert (batch.state().time == 0).all() and (np.abs(batch.state().position) <= 0.1).all()


def test_a_simulator_that_ends_is_named() -> None:
    to_read, to_write = os.pipe(), os.pipe()
    theirs, ours = Channel(to_read[0], to_write[1]), Channel(to_write[0], to_read[1])
    theirs.close()
    with pytest.raises(Unavailable, match="simulator of its environment pack mjlab failed") as caught:
        PackBatch(small_card(), 2, options=EnvOptions(), fields=None, channel=ours)
    assert caught.value.reason == "SIMULATOR_FAILED"
    ours.close()


def test_a_batch_of_a_pack_needs_a_simulators_process() -> None:
    with pytest.raises(FailedPrecondition) as caught:
        make_batch(GO1, 2, num_threads=1)
    assert caught.value.reason == "NO_SIMULATOR"


def test_differences_name_each_task_once() -> None:
    one, two = tasks.Task("A", "c", "direct", "newton"), tasks.Task("B", "c", "manager", "physx")
    changed = replace(one, backend="physx")
    assert tasks.differences([changed], [one, two]) == ["gone: B", f"changed: {one} is now {changed}"]
