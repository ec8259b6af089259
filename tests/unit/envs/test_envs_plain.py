"""Gymnasium's small environments: played as Gymnasium plays them, recorded with the fields of their cards."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest
from dressage.envs import SEARCH_ENVIRONMENT_IDS, EnvOptions, load_card, make_batch
from dressage.envs.plain import plain
from dressage.envs.reference import StockPlayer, random_policy, rollout
from dressage.envs.stock import make_stock
from dressage.errors import InvalidArgument

STOCK_IDS = [env_id for env_id in SEARCH_ENVIRONMENT_IDS if not env_id.startswith(("Nim", "Pong5", "Maze", "Noise"))]


def pump(observation):
    """Push in the direction of motion: it reaches the top."""
    return np.asarray(2 if observation[1] >= 0 else 0)


def pump_continuously(observation):
    return np.array([1.0 if observation[1] >= 0 else -1.0], np.float32)


def wander(observation):
    """A fixed direction for each cell."""
    return np.asarray((int(observation.argmax()) * 7 + 1) % 4)


PLAYERS = {"MountainCar-v0": pump, "MountainCarContinuous-v0": pump_continuously, "FrozenLake-v1": wander}


def stock_episode(env_id, act, seed, **options):
    """An episode by Gymnasium's own loop: flat observations, rewards and the end."""
    env = gymnasium.make(env_id, **options)
    count = int(getattr(env.observation_space, "n", 0))
    seen, _ = env.reset(seed=seed)
    observations, rewards, ended = [], [], (False, False)
    while True:
        flat = np.eye(count)[seen] if count else np.asarray(seen, np.float64)
        observations.append(flat)
        if any(ended):
            return np.stack(observations), rewards, ended
        action = act(flat)
        seen, reward, *ended, _ = env.step(int(action) if action.ndim == 0 else action)
        rewards.append(reward)


@pytest.mark.parametrize("env_id", STOCK_IDS)
@pytest.mark.parametrize("options", [{}, {"max_episode_steps": 37}])
def test_the_player_plays_what_gymnasium_plays(env_id, options):
    act, seeds = PLAYERS[env_id], (0, 1, 2, 3, 7, 2**40)
    with StockPlayer(env_id, EnvOptions(**options)) as player:
        for seed in seeds:
            observations, rewards, ended = stock_episode(env_id, act, seed, **options)
            trajectory, recorded = player.record(act, seed)
            played = player.play(act, seed)
            assert played == recorded
            assert (played.stock_return, played.length) == (float(np.sum(rewards)), len(rewards))
            np.testing.assert_array_equal(trajectory.observation, observations)
            assert [trajectory.terminated, trajectory.truncated] == list(ended)
            assert trajectory.reward.tolist() == rewards


def test_a_car_that_pumps_reaches_the_top():
    with StockPlayer("MountainCar-v0") as player, StockPlayer("MountainCarContinuous-v0") as continuous:
        assert player.play(pump, 1).length < 150
        assert continuous.play(pump_continuously, 1).stock_return > 85


def test_recorded_fields_are_the_state_of_the_car():
    (episode,) = rollout(pump_continuously, "MountainCarContinuous-v0", [3])
    assert tuple(episode.fields) == load_card("MountainCarContinuous-v0").field_names
    np.testing.assert_array_equal(episode.position, episode.observation[:, 0])
    np.testing.assert_array_equal(episode.velocity, episode.observation[:, 1])
    assert episode.terminated and episode.position[-1] >= 0.45
    assert episode.height.max() <= 1 + 1e-9 and episode.height.min() >= 0.1 - 1e-9


def test_recorded_fields_are_the_cell_on_the_lake():
    (episode,) = rollout(wander, "FrozenLake-v1", [3])
    assert set(episode.observation.sum(axis=1)) == {1.0}
    np.testing.assert_array_equal(episode.cell, episode.observation @ np.arange(16))
    np.testing.assert_array_equal(episode.cell, 4 * episode.row + episode.column)


def lake_plan(steps: int) -> tuple[float, np.ndarray]:
    """Return the probability of arriving within ``steps`` under the best policy, and the stationary best table.

    By value iteration on Gymnasium's own transition table.
    """
    table = gymnasium.make("FrozenLake-v1").unwrapped.P

    def backup(values):
        return np.array(
            [
                [
                    sum(p * (reward + (0.0 if end else values[to])) for p, to, reward, end in table[cell][a])
                    for a in range(4)
                ]
                for cell in range(16)
            ]
        )

    values = np.zeros(16)
    for _ in range(steps):
        values = backup(values).max(axis=1)
    best = values[0]
    for _ in range(2000):
        values = backup(values).max(axis=1)
    return float(best), backup(values).argmax(axis=1)


def test_the_optimal_table_of_the_lake_arrives_as_often_as_computed():
    best, table = lake_plan(load_card("FrozenLake-v1").max_episode_steps)
    assert best == pytest.approx(0.744, abs=0.002)
    with StockPlayer("FrozenLake-v1") as player:
        returns = [
            player.play(lambda seen: np.asarray(table[int(seen.argmax())]), seed).stock_return for seed in range(1500)
        ]
    assert np.mean(returns) == pytest.approx(best, abs=4 * (best * (1 - best) / 1500) ** 0.5)
    assert load_card("FrozenLake-v1").target < best


@pytest.mark.parametrize("env_id", SEARCH_ENVIRONMENT_IDS)
def test_every_search_environment_can_be_played_and_recorded(env_id):
    card = load_card(env_id)
    (episode,) = rollout(random_policy(env_id, 1), env_id, [5], EnvOptions(max_episode_steps=9))
    assert episode.num_steps <= 9 and tuple(episode.fields) == card.field_names
    for field in card.fields:
        assert episode.fields[field.name].shape == (episode.num_steps + 1, *field.shape), field.name
        assert episode.fields[field.name].dtype == np.float64
    assert episode.observation.shape[1] == card.observation_size == plain(env_id).observation_size
    if card.num_observations:
        assert card.num_observations == card.observation_size
    assert not card.has_video


@pytest.mark.parametrize("env_id", SEARCH_ENVIRONMENT_IDS)
def test_sample_observations_are_in_the_space_of_the_environment(env_id):
    from dressage.envs import load_check_trajectories

    card = load_card(env_id)
    env = make_stock(card, EnvOptions())
    for group in load_check_trajectories(card.id).values():
        for row in group[0].observation:
            observation = int(row.argmax()) if card.num_observations else row.astype(np.float32)
            assert env.observation_space.contains(observation)
    env.close()


def test_a_batch_of_a_search_environment_is_refused():
    with pytest.raises(InvalidArgument, match=r"environment: it has no batch \(got 'Nim-v0'\); expected .*'reward'"):
        make_batch("Nim-v0", 2, num_threads=1)


def test_an_option_that_it_does_not_have_is_refused():
    with pytest.raises(InvalidArgument, match=r"options.reset_noise_scale"):
        StockPlayer("Nim-v0", EnvOptions(reset_noise_scale=0.1))
