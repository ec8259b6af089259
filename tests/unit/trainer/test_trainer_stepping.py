"""Stepping in parts gives the bits of stepping as a whole, and the faster way is found."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("mujoco")

from dressage.envs import EnvOptions, make_batch
from dressage_trainer.speed.stepping import PartedBatch, SteppedBatch, stepped

N = 7


def make(count, threads):
    return make_batch("Hopper-v5", count, num_threads=threads, options=EnvOptions(max_episode_steps=9))


def play(batch, steps, rng, change=lambda index: None):
    """Everything that a trainer sees of some steps."""
    seen = []
    for index in range(steps):
        step = batch.step(rng.uniform(-1, 1, (N, 3)))
        seen.append([step.observation, step.final_observation, step.reward, step.terminated, step.truncated,
                     step.state.x_velocity, step.next_state.z_torso if hasattr(step.next_state, "z_torso") else
                     step.next_state.x_velocity])  # fmt: skip
        change(index)
    return seen


def test_parts_and_changes_between_them_give_the_same_bits():
    whole, mixed = make(N, 2), stepped(make, N, threads=2)
    assert isinstance(mixed, SteppedBatch) and mixed.card is whole.card
    np.testing.assert_array_equal(whole.reset(range(N)), mixed.reset(range(N)))
    ours = play(mixed, 30, np.random.default_rng(0), lambda index: mixed._switch() if index % 4 == 1 else None)
    theirs = play(whole, 30, np.random.default_rng(0))
    for a, b in zip(ours, theirs, strict=True):
        for x, y in zip(a, b, strict=True):
            np.testing.assert_array_equal(x, y)
    for name, value in whole.snapshot().items():
        np.testing.assert_array_equal(mixed.snapshot()[name], value, err_msg=name)
    mixed._switch()
    for name, value in whole.snapshot().items():
        np.testing.assert_array_equal(mixed.snapshot()[name], value, err_msg=name)
    mixed.close()


def test_divergences_are_counted_once_over_changes():
    batch = stepped(make, N, threads=2)
    batch.reset(range(N))
    for _ in range(2):
        batch.step(np.full((N, 3), np.nan))
        batch._switch()
    assert batch.divergences == 2 * N
    batch.close()


@pytest.mark.parametrize(("num_envs", "threads"), [(1, 2), (8, 1)])
def test_there_is_no_choice_for_one_thread_or_row(num_envs, threads):
    assert not isinstance(stepped(make, num_envs, threads=threads), SteppedBatch)


def share_in_parts(batch, rate, rollouts):
    """How often parts were in use, while rollouts are as fast as ``rate(in_parts)``."""
    used = 0
    for _ in range(rollouts):
        used += batch.in_parts
        batch.measured(rate(batch.in_parts))
    return used / rollouts


def test_the_faster_way_is_found_and_left_when_the_neighbour_goes():
    batch = stepped(make, N, threads=2)
    batch.reset(range(N))
    assert share_in_parts(batch, lambda parts: 0.9 if parts else 1.0, 400) < 0.03
    assert not batch.in_parts
    # A neighbour arrives: whole batches slow down tenfold, parts to a half.
    assert share_in_parts(batch, lambda parts: 0.5 if parts else 0.1, 400) > 0.95
    # It leaves.
    assert share_in_parts(batch, lambda parts: 0.9 if parts else 1.0, 600) < 0.55
    assert not batch.in_parts
    batch.close()


def test_an_uneven_number_of_rows_is_parted_whole():
    parted = PartedBatch(lambda count: make(count, 1), N, threads=2)
    assert [rows.stop - rows.start for rows in parted._rows] == [2, 2, 1, 2]
    assert parted.reset(range(N)).shape[0] == N
    parted.close()
