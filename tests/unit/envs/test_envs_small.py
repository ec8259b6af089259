"""The small environments of this project: their rules as properties, their draws, and what a player may see of them."""

from __future__ import annotations

import functools
import re

import gymnasium
import numpy as np
import pytest
from dressage.envs import EnvOptions, load_card, load_check_trajectories
from dressage.envs.catalogue.maze import rules as maze
from dressage.envs.catalogue.nim import rules as nim
from dressage.envs.catalogue.noise_world import rules as boards
from dressage.envs.catalogue.noise_world.rules import BOARDS
from dressage.envs.catalogue.pong import rules as pong
from dressage.envs.describe import describe
from dressage.envs.plain import plain
from dressage.envs.reference import StockPlayer, random_policy
from dressage.envs.small import OWN
from gymnasium.utils.env_checker import check_env
from hypothesis import given, settings
from hypothesis import strategies as st

DRAW = st.floats(0, 1, exclude_max=True)
IDS = tuple(OWN)
WORLDS = [env_id for env_id in IDS if env_id.startswith("NoiseWorld")]


def advance(env_id, state, action, *draws):
    """Return the state after a step by the rules, the reward and whether the episode ended."""
    after = [float(number) for number in state]
    reward, ended = OWN[env_id].step(after, action, None, draws, 0)
    return after, float(reward), bool(ended)


@pytest.mark.parametrize("env_id", IDS)
@pytest.mark.filterwarnings("error")
def test_gymnasium_checks_the_environment(env_id):
    check_env(gymnasium.make(f"dressage.envs.small:{env_id}").unwrapped, skip_render_check=True)


@pytest.mark.parametrize("env_id", IDS)
def test_the_registered_numbers_are_the_cards(env_id):
    spec, card = gymnasium.spec(env_id), load_card(env_id)
    assert (spec.max_episode_steps, spec.reward_threshold) == (card.max_episode_steps, card.target)
    assert card.methods == ("parameters", "code")


class Counting:
    """A generator that counts what is drawn from it; only ``random(count)`` can be drawn."""

    def __init__(self, stream):
        self.stream, self.drawn = stream, []

    def random(self, count):
        numbers = self.stream.random(count)
        self.drawn += numbers.tolist()
        return numbers


@pytest.mark.parametrize("env_id", IDS)
@given(seed=st.integers(0, 2**32), moves=st.lists(st.integers(0, 2), min_size=1, max_size=12))
@settings(max_examples=15)
def test_draws_are_as_documented_and_can_be_made_in_advance(env_id, seed, moves):
    at_reset, in_step = {"Pon": (3, 0), "Nim": (0, 2), "Noi": (0, 1)}.get(env_id[:3], (0, 0))
    env = gymnasium.make(env_id).unwrapped
    env.reset(seed=seed)
    env.np_random = counting = Counting(np.random.default_rng(seed))
    env.reset()
    assert len(counting.drawn) == at_reset
    for steps, move in enumerate(moves, 1):
        _, _, terminated, _, _ = env.step(move)
        assert len(counting.drawn) == at_reset + steps * in_step
        if terminated:
            break
    assert counting.drawn == np.random.default_rng(seed).random(len(counting.drawn)).tolist()


# Nim


@given(sticks=st.integers(1, 10), action=st.integers(0, 2), error=DRAW, choice=DRAW)
def test_a_move_of_nim_is_legal_or_loses(sticks, action, error, choice):
    (after,), reward, ended = advance("Nim-v0", [sticks], action, error, choice)
    if action + 1 > sticks:
        assert (after, reward, ended) == (sticks, -1.0, True)
    elif action + 1 == sticks:
        assert (after, reward, ended) == (0, -1.0, True)
    else:
        removed = sticks - after - (action + 1)
        assert 1 <= removed <= min(3, sticks - action - 1)
        assert (reward, ended) == ((1.0, True) if after == 0 else (0.0, False))


@functools.cache
def value(sticks: int) -> float:
    """Probability-weighted result of perfect play, from the rules: over the opponent's possible draws."""

    def result(action: int) -> float:
        if action + 1 >= sticks:
            return -1.0
        total = 0.0
        legal = min(3, sticks - action - 1)
        for error, weight in ((0.0, nim.ERROR_RATE), (0.5, 1 - nim.ERROR_RATE)):
            for index in range(legal):
                (after,), reward, ended = advance("Nim-v0", [sticks], action, error, (index + 0.5) / legal)
                total += weight / legal * (reward if ended else value(int(after)))
        return total

    return max(result(action) for action in range(3))


def test_perfect_play_of_nim_wins_from_all_but_lost_positions():
    assert [value(sticks) == pytest.approx(1.0) for sticks in range(2, 11)] == [s % 4 != 1 for s in range(2, 11)]
    assert -1 < value(5) < 1  # the opponent errs now and then


def test_the_optimal_table_always_wins_nim():
    table = [0, 0, 0, 1, 2, 0, 0, 1, 2, 0, 0]  # leaves 1, 5 and 9
    with StockPlayer("Nim-v0") as player:
        results = {
            player.play(lambda seen: np.asarray(table[int(seen.argmax())]), seed).stock_return for seed in range(300)
        }
    assert results == {1.0}


def test_the_opponent_of_nim_errs_as_often_as_it_says():
    draws = np.random.default_rng(1).random((20_000, 2))
    good = np.mean([advance("Nim-v0", [9], 0, *row)[0] == [5] for row in draws])  # the player leaves 8, the opponent 5
    assert good == pytest.approx(1 - nim.ERROR_RATE * 2 / 3, abs=0.01)


# Maze


def test_the_best_way_through_the_maze_takes_four_moves():
    distance = {0: 0}
    frontier = [0]
    for cell in frontier:
        for other in maze.NEXT_CELL[cell]:
            if other not in distance:
                distance[other] = distance[cell] + 1
                frontier.append(other)
    assert sorted(distance) == list(range(9)) and distance[maze.GOAL] == 4
    doors = {frozenset((cell, other)) for cell in range(9) for other in maze.NEXT_CELL[cell] if other != cell}
    assert len(doors) == 8  # a tree: there is one way


@given(cell=st.integers(0, 8), action=st.integers(0, 3))
def test_a_move_in_the_maze_goes_to_a_neighbour_and_back(cell, action):
    after = maze.NEXT_CELL[cell][action]
    assert after == cell or abs(after // 3 - cell // 3) + abs(after % 3 - cell % 3) == 1
    if after != cell:
        assert maze.NEXT_CELL[after][action ^ 1] == cell


@pytest.mark.parametrize(("limit", "worst"), [(None, -100 * 0.1 / 9), (20, -20 * 0.1 / 9)])
def test_the_time_limit_of_the_maze_is_an_option(limit, worst):
    way = {0: 1, 3: 2, 4: 1, 7: 2}
    with StockPlayer("Maze3x3-v0", EnvOptions(max_episode_steps=limit)) as player:
        best = player.play(lambda seen: np.asarray(way[int(seen.argmax())]), 1)
        lost = player.play(lambda seen: np.asarray(0), 1)
    assert (best.stock_return, best.length) == (pytest.approx(1 - 3 * 0.1 / 9), 4)
    assert lost.stock_return == pytest.approx(worst)


# Pong


def track(seen):
    """Move the paddle to the ball's height."""
    ahead = seen[1] - seen[4]
    return np.asarray(0 if abs(ahead) <= 3 else 1 if ahead > 0 else 2)


def test_a_paddle_that_follows_the_ball_nearly_always_returns_it():
    with StockPlayer("Pong5-v0") as player:
        tracked = [player.play(track, seed) for seed in range(60)]
        still = [player.play(lambda seen: np.asarray(0), seed).stock_return for seed in range(40)]
    # Off-centre returns near the floor or the ceiling may make the ball faster than the paddle.
    assert np.mean([one.stock_return for one in tracked]) > load_card("Pong5-v0").target
    assert {one.stock_return for one in tracked if one.length == 1000} == {3.0}
    assert np.mean(still) < 1


@given(height=DRAW, slope=DRAW, side=DRAW, moves=st.lists(st.integers(0, 2), min_size=1, max_size=400))
@settings(max_examples=60)
def test_the_ball_and_the_paddle_stay_on_the_field(height, slope, side, moves):
    rally, count = [0.0] * 5, 0.0
    OWN["Pong5-v0"].start(rally, (height, slope, side))
    space = gymnasium.make("Pong5-v0").observation_space
    for move in moves:
        before = rally
        rally, reward, missed = advance("Pong5-v0", before, move)
        count += reward
        assert space.contains(np.array(rally, np.float32))
        assert abs(rally[4] - before[4]) <= pong.PADDLE_SPEED
        assert abs(rally[2]) == pong.BALL_SPEED
        near = abs(rally[1] - rally[4]) <= pong.PADDLE_HALF
        arrives = before[2] > 0 and before[0] + before[2] >= pong.PADDLE_X
        assert (reward == 1.0, missed) == (arrives and near, arrives and not near)
        if missed:
            break
    assert count <= 3


# NoiseWorld


def board_step(index, row, column, stage, action, draw):
    """Return row, column, stage, reward and end after a step on a board."""
    (row, column, stage, _), reward, ended = advance(f"NoiseWorld{index}-v0", (row, column, stage, index), action, draw)
    return int(row), int(column), int(stage), reward, ended


def test_the_boards_have_the_documented_sizes_and_cells():
    assert [board.size for board in BOARDS] == [5, *[10] * 6]
    for index, board in enumerate(BOARDS):
        codes = np.array(board.codes)
        assert codes.shape == (board.size, board.size) and codes[board.start] == boards.DETERMINISTIC
        assert (codes == boards.GOAL).sum() == 1
        assert [(codes == key).sum() for key in (6, 7)] == [int(index >= 4)] * 2
        assert board.needs_keys == (index >= 4)


@given(
    index=st.integers(0, 6),
    place=st.tuples(st.integers(0, 9), st.integers(0, 9)),
    stage=st.integers(0, 2),
    action=st.integers(0, 3),
    draw=DRAW,
)
@settings(max_examples=400)
def test_a_step_on_a_board_follows_the_rules(index, place, stage, action, draw):
    board = BOARDS[index]
    row, column = (number % board.size for number in place)
    code = board.codes[row][column]
    if code == boards.WALL:
        return
    new_row, new_column, new_stage, reward, ended = board_step(index, row, column, stage, action, draw)
    reached = board.codes[new_row][new_column]
    moved = abs(new_row - row) + abs(new_column - column)
    assert 0 <= new_row < board.size and 0 <= new_column < board.size and reached != boards.WALL
    if code == boards.STOCHASTIC_RESET and draw < boards.RESET_RATE:
        assert (new_row, new_column) == board.start
    elif code == boards.STOCHASTIC_STAY and draw < boards.STAY_RATE:
        assert moved == 0
    else:
        down, right = boards.MOVES[action]
        target = (row + down, column + right)
        free = all(0 <= part < board.size for part in target) and board.codes[target[0]][target[1]] != boards.WALL
        assert (new_row, new_column) == (target if free else (row, column))
    gained = {6: stage == 0, 7: stage == 1}.get(reached, False)
    assert new_stage == stage + gained
    pays = reached == boards.GOAL and (index < 4 or stage == 2)
    size = board.size
    assert reward == -1 + (size**3 if pays else 0) - (size**5 if reached == boards.TRAP else 0)
    assert ended == (reached in (boards.GOAL, boards.TRAP))


def plan(index: int) -> tuple[float, np.ndarray]:
    """Return the optimal expected return of a board and its actions by steps left, stage, row and column."""
    board = BOARDS[index]
    size, steps = board.size, board.size**2
    values = np.zeros((steps + 1, 3, size, size))
    actions = np.zeros((steps + 1, 3, size, size), np.int64)
    cells = [(row, column) for row in range(size) for column in range(size)]
    passable = [cell for cell in cells if board.codes[cell[0]][cell[1]] not in (boards.WALL, boards.GOAL, boards.TRAP)]
    rates = {boards.STOCHASTIC_STAY: boards.STAY_RATE, boards.STOCHASTIC_RESET: boards.RESET_RATE}
    steps_of: dict[tuple[int, int, int], list[list[tuple[float, int, int, int, float, bool]]]] = {}
    for stage in range(3):
        for row, column in passable:
            rate = rates.get(board.codes[row][column], 0.0)
            steps_of[stage, row, column] = [
                [
                    (weight, *board_step(index, row, column, stage, action, draw))
                    for weight, draw in ((rate, 0.0), (1 - rate, rate))
                ]
                for action in range(4)
            ]
    for left in range(1, steps + 1):
        for (stage, row, column), outcomes in steps_of.items():
            expected = [
                sum(w * (gain + (0.0 if end else values[left - 1, s, r, c])) for w, r, c, s, gain, end in outcome)
                for outcome in outcomes
            ]
            actions[left, stage, row, column] = int(np.argmax(expected))
            values[left, stage, row, column] = max(expected)
    return float(values[steps, 0, *board.start]), actions


@pytest.mark.parametrize("index", range(7))
def test_the_optimal_player_reaches_the_target_of_a_board(index):
    """By value iteration on the rules, then by playing the plan on the registered environment."""
    board = BOARDS[index]
    optimum, actions = plan(index)
    assert 0.95 * optimum < board.target < optimum
    size = board.size
    assert optimum < size**3 - 8

    class Planner:
        def __init__(self) -> None:
            self.left, self.stage = board.size**2, 0

        def __call__(self, seen):
            row, column = int(seen[0]), int(seen[1])
            code = int(seen[2 + row * size + column])
            self.stage += {6: self.stage == 0, 7: self.stage == 1}.get(code, False)
            action = actions[self.left, self.stage, row, column]
            self.left -= 1
            return np.asarray(action)

    with StockPlayer(f"NoiseWorld{index}-v0") as player:
        returns = [player.play(Planner(), seed).stock_return for seed in range(400)]
    assert np.mean(returns) == pytest.approx(optimum, abs=4 * np.std(returns) / 20 + 1e-9)


@pytest.mark.parametrize("index", [4, 5, 6])
def test_without_the_hidden_cells_a_goal_ends_the_episode_unpaid(index):
    board = BOARDS[index]
    goal = tuple(int(part) for part in np.argwhere(np.array(board.codes) == boards.GOAL)[0])
    above = (goal[0] - 1, goal[1])
    beside = (goal[0], goal[1] - 1)
    (row, column), action = (above, 2) if board.codes[above[0]][above[1]] != boards.WALL else (beside, 1)
    for stage, reward in ((0, -1.0), (1, -1.0), (2, board.size**3 - 1.0)):
        assert board_step(index, row, column, stage, action, 0.99)[3:] == (reward, True)


@pytest.mark.parametrize("env_id", WORLDS)
def test_the_words_and_the_files_of_a_world_keep_its_secrets(env_id):
    """No word for a kind of cell, no code with a meaning, the same text for boards with and without hidden cells."""
    text = describe(load_card(env_id)).lower()
    for word in (
        "wall",
        "trap",
        "goal",
        "key",
        "reset",
        "stay",
        "stochastic",
        "deterministic",
        "slip",
        "order",
        "first",
    ):
        assert not re.search(rf"\b{word}s?\b", text), word
    assert not re.search(r"\b(code|cell)s? [0-9]\b", text)
    other = describe(load_card("NoiseWorld1-v0")).lower().replace("noiseworld1", env_id.lower()[:11])
    if env_id != "NoiseWorld0-v0":
        without = [re.sub(r"board \d", "board", part.partition("scales")[0]) for part in (text, other)]
        assert without[0] == without[1]


@pytest.mark.parametrize("env_id", WORLDS)
def test_an_observation_has_the_position_and_the_codes_only(env_id):
    board = BOARDS[int(env_id[10])]
    env = gymnasium.make(env_id)
    seen, info = env.reset(seed=1)
    env.action_space.seed(1)
    ended = False
    while not ended:
        assert info == {} and seen[2:].tolist() == np.ravel(board.codes).tolist()
        seen[:] = 7  # a copy: the board does not change
        seen, _, terminated, truncated, info = env.step(env.action_space.sample())
        ended = terminated or truncated
    assert np.ravel(board.codes).tolist() == seen[2:].tolist()


@pytest.mark.parametrize("env_id", WORLDS)
def test_the_shipped_episodes_show_observations_of_the_board(env_id):
    episode = load_check_trajectories(env_id)["random"][0]
    rows, columns = episode.row.astype(int), episode.column.astype(int)
    assert episode.code.tolist() == np.array(BOARDS[int(env_id[10])].codes)[rows, columns].tolist()
    assert plain(env_id).observation_size == episode.observation.shape[1]


@pytest.mark.parametrize("env_id", IDS)
def test_equal_seeds_give_equal_episodes(env_id):
    def play(player, seed):
        return player.play(random_policy(env_id, seed), seed)

    with StockPlayer(env_id) as one, StockPlayer(env_id) as other:
        assert [play(one, seed) for seed in range(8)] == [play(other, seed) for seed in reversed(range(8))][::-1]
