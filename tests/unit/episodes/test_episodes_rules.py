"""Compiled rules equal the reference environment step by step: stock Gymnasium's, or this project's own definitions."""

from __future__ import annotations

import ast
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from dressage.envs.cards import load_card
from dressage.envs.catalogue import catalogue
from dressage.envs.options import EnvOptions
from dressage.envs.rules import RULED_IDS, rules_of
from dressage.envs.stock import make_stock
from dressage.episodes.choice import lockstep
from dressage.episodes.compiled import draws_of
from dressage.episodes.kernels import compiled_rules
from dressage.episodes.versions import sources

SEEDS = range(60)


def cart_pole(observation, rng, seed, memory):
    """Balance, in two of three episodes: these are long."""
    return int(observation[2] + observation[3] > 0) if seed % 3 else int(rng.integers(2))


def mountain_car(observation, rng, seed, memory):
    """Push along, in two of three episodes: these reach the goal."""
    return 2 * int(observation[1] > 0) if seed % 3 else int(rng.integers(3))


def mountain_car_continuous(observation, rng, seed, memory):
    if seed % 4 == 3:
        return np.array([1.0 if observation[1] >= 0 else -1.0], np.float32)
    return rng.uniform(-1, 1, 1).astype(np.float32) * np.float32(seed % 4) / np.float32(2)


def pong(observation, rng, seed, memory):
    return (1 if observation[1] > observation[4] else 2) if seed % 2 else int(rng.integers(3))


LAKE = (0, 3, 3, 3, 0, 0, 0, 0, 3, 1, 0, 0, 0, 2, 1, 0)
"""The best table."""


def frozen_lake(observation, rng, seed, memory):
    return LAKE[observation] if seed % 2 else int(rng.integers(4))


KEYS = ((5,), (7, 6, 5), (6, 7, 5), (3,), (6, 5))
"""Codes that an episode visits in turn: the goal at once, with the keys in both orders, a trap, the goal with one key."""


def noise_world(observation, rng, seed, memory):
    """Walk to the nearest cell of the next code, as the crow flies where walls permit; sometimes anywhere."""
    place, codes = observation[:2].astype(int), observation[2:]
    size = round(len(codes) ** 0.5)
    codes = codes.reshape(size, size)
    plan = memory.setdefault("plan", [code for code in KEYS[seed % len(KEYS)] if (codes == code).any()])
    if plan and codes[tuple(place)] == plan[0]:
        plan.pop(0)
    if not plan or rng.random() < 0.05:
        return int(rng.integers(4))
    return memory.setdefault(plan[0], moves_to(codes, plan[0]))[place[0], place[1]]


def moves_to(codes, target):
    """Return the first move of a shortest way to a code from every cell, around walls, traps and goals."""
    moves, queue = np.zeros(codes.shape, int), [tuple(cell) for cell in np.argwhere(codes == target)]
    known = set(queue)
    for row, column in queue:
        for action, (down, right) in enumerate(((-1, 0), (0, 1), (1, 0), (0, -1))):
            before = (row - down, column - right)
            inside = all(0 <= part < len(codes) for part in before)
            if inside and before not in known and codes[before] not in (2, 3, 5):
                known.add(before)
                queue.append(before)
                moves[before] = action
    return moves


PLAYERS = {
    "FrozenLake-v1": frozen_lake,
    **{f"NoiseWorld{board}-v0": noise_world for board in range(7)},
    "CartPole-v1": cart_pole,
    "MountainCar-v0": mountain_car,
    "MountainCarContinuous-v0": mountain_car_continuous,
    "Pong5-v0": pong,
}


def stock_episode(env, act, seed):
    """Return actions, observations, rewards, terminations of one whole episode, and whether it was truncated."""
    rng = np.random.default_rng(seed)
    observation, _ = env.reset(seed=seed)
    actions, observations, rewards, ended, memory = [], [observation], [], [], {}
    truncated = False
    while not (truncated or (ended and ended[-1])):
        action = act(observation, rng, seed, memory)
        observation, reward, terminated, truncated, _ = env.step(action)
        actions.append(action)
        observations.append(observation)
        rewards.append(float(reward))
        ended.append(terminated)
    return actions, observations, rewards, ended, truncated


def replayed(rules, limit, seed, actions):
    """Return what the compiled rules give for the same actions."""
    count, box = len(actions), rules.action_size > 0
    observations = np.zeros((count + 1, rules.observation_size))
    numbers, rewards, ended = np.zeros(count + 1, np.int64), np.zeros(count), np.zeros(count, bool)
    choices = np.zeros(count, np.int64) if box else np.array(actions, np.int64)
    boxes = np.array(actions, np.float32) if box else np.zeros((count, 1), np.float32)
    draws, state, steps = draws_of(rules, seed, limit), np.zeros(rules.state_size), 0
    rules.start(state, draws)
    rules.observe(state, observations[0])
    numbers[0] = rules.number(state)
    while steps < count and not (steps and ended[steps - 1]):
        first = rules.draws_at_start + rules.draws_per_step * steps
        rewards[steps], ended[steps] = rules.step(state, choices[steps], boxes[steps], draws, first)
        steps += 1
        rules.observe(state, observations[steps])
        numbers[steps] = rules.number(state)
    return steps, observations, numbers, rewards, ended


@pytest.mark.parametrize("env_id", RULED_IDS)
def test_every_step_of_whole_episodes_is_the_reference_step(env_id):
    rules, card = compiled_rules(env_id), load_card(env_id)
    env, lengths, totals = make_stock(card, EnvOptions()), set(), set()
    act = PLAYERS.get(env_id, lambda observation, rng, *_: int(rng.integers(card.num_actions)))
    for seed in SEEDS:
        actions, observations, rewards, ended, truncated = stock_episode(env, act, seed)
        steps, seen, numbers, paid, over = replayed(rules, card.max_episode_steps, seed, actions)
        assert steps == len(actions)
        assert truncated == (len(actions) == card.max_episode_steps)
        np.testing.assert_array_equal(paid, rewards)
        np.testing.assert_array_equal(over, ended)
        if card.num_observations:
            np.testing.assert_array_equal(numbers, observations)
            np.testing.assert_array_equal(seen, np.eye(card.num_observations)[observations])
        else:
            np.testing.assert_array_equal(seen, np.array(observations, np.float64))
        lengths.add(steps)
        totals.add(sum(rewards))
    assert len(lengths) > 1 and len(totals) > 1


@pytest.mark.parametrize("env_id", ["MountainCarContinuous-v0", "NoiseWorld3-v0", "FrozenLake-v1"])
def test_episodes_in_lockstep_are_reference_episodes(env_id):
    card = load_card(env_id)
    env, simulation, act = make_stock(card, EnvOptions()), lockstep(env_id, EnvOptions()), PLAYERS[env_id]
    episodes = [stock_episode(env, act, seed) for seed in range(7)]
    flat = [np.eye(16)[one[1]] if card.num_observations else np.array(one[1], np.float64) for one in episodes]
    seen, rows, step = simulation.reset(range(7)), np.arange(7), 0
    np.testing.assert_array_equal(seen, [one[0] for one in flat])
    while len(rows):
        actions = np.array([episodes[row][0][step] for row in rows])
        seen, rewards, ends, successes = simulation.step(rows, actions)
        np.testing.assert_array_equal(seen, [flat[row][step + 1] for row in rows])
        np.testing.assert_array_equal(rewards, [episodes[row][2][step] for row in rows])
        assert ends.tolist() == [len(episodes[row][0]) == step + 1 for row in rows]
        assert (successes == -1).all()
        rows, step = rows[~ends], step + 1


@pytest.mark.parametrize("env_id", RULED_IDS)
def test_the_rules_as_plain_python_are_the_compiled_rules(env_id):
    rules, card, stream = rules_of(env_id), load_card(env_id), np.random.default_rng(0)
    for seed in range(5):
        count = min(card.max_episode_steps, 60)
        moves = stream.integers(max(card.num_actions, 1), size=count)
        boxes = stream.uniform(-1, 1, (count, 1)).astype(np.float32)
        steps, seen, numbers, paid, over = replayed(
            compiled_rules(env_id), count, seed, boxes if rules.action_size else moves
        )
        draws, state, row = draws_of(rules, seed, count), [0.0] * rules.state_size, np.zeros(rules.observation_size)
        rules.start(state, draws)
        for step in range(steps):
            first = rules.draws_at_start + rules.draws_per_step * step
            assert rules.step(state, moves[step], boxes[step], draws, first) == (paid[step], over[step])
            rules.observe(state, row)
            np.testing.assert_array_equal(row, seen[step + 1])
            assert rules.number(state) == numbers[step + 1]


@pytest.mark.parametrize("env_id", RULED_IDS)
def test_the_key_of_kernels_depends_on_the_modules_that_rules_import(env_id):
    file = catalogue()[env_id].rules_file
    imports = [node.module for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.ImportFrom)]
    own = [name for name in imports if name.startswith(("dressage.envs.catalogue", "dressage.envs.rules"))]
    assert {file, *(Path(find_spec(name).origin) for name in own)} <= set(sources()) and own
