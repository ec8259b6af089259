"""Nim-v0, Pong5-v0 and Maze3x3-v0, as `dressage.envs.small` defines them."""

from __future__ import annotations

from typing import Any

import numpy as np

from dressage.envs.small.maze import GOAL, GOAL_REWARD, NEXT_CELL, SIZE, STEP_REWARD
from dressage.envs.small.nim import DRAWS_PER_STEP, ERROR_RATE, MOST, STICKS
from dressage.envs.small.pong import (
    BALL_SPEED,
    DRAWS_AT_RESET,
    HEIGHT,
    MOST_VERTICAL,
    PADDLE_HALF,
    PADDLE_SPEED,
    PADDLE_X,
    SPIN,
    WIDTH,
)
from dressage.episodes.compiling import device
from dressage.episodes.rules.base import Array, Rules, first_number, no_number, observe_one_hot

_NEXT_CELL = np.array(NEXT_CELL)

# -- Nim. State: the sticks, and the number of steps done.


def _nim_draws(stream: np.random.Generator, limit: int) -> Array:
    return stream.random(DRAWS_PER_STEP * limit)


@device
def _nim_start(state: Any, draws: Any) -> None:
    state[0] = STICKS
    state[1] = 0.0


@device
def _nim_step(state: Any, choice: int, action: Any, draws: Any) -> tuple[float, bool]:
    sticks, steps = int(state[0]), int(state[1])
    state[1] = steps + 1
    if choice + 1 > sticks:
        return -1.0, True
    sticks -= choice + 1
    if sticks == 0:
        state[0] = 0.0
        return -1.0, True
    take = (sticks - 1) % (MOST + 1)
    if take == 0 or draws[DRAWS_PER_STEP * steps] < ERROR_RATE:
        take = 1 + int(draws[DRAWS_PER_STEP * steps + 1] * min(MOST, sticks))
    sticks -= take
    state[0] = sticks
    return (1.0 if sticks == 0 else 0.0), sticks == 0


NIM = Rules(
    name="nim",
    state_size=2,
    observation_size=STICKS + 1,
    action_size=0,
    draws=_nim_draws,
    start=_nim_start,
    observe=observe_one_hot,
    number=first_number,
    step=_nim_step,
)

# -- Pong. State: the ball's x and y, its velocities, and the paddle's centre.


def _pong_draws(stream: np.random.Generator, limit: int) -> Array:
    return stream.random(DRAWS_AT_RESET)


@device
def _pong_start(state: Any, draws: Any) -> None:
    state[0] = WIDTH / 2
    state[1] = 100.0 + 400.0 * draws[0]
    state[2] = BALL_SPEED if draws[2] < 0.5 else -BALL_SPEED
    state[3] = BALL_SPEED * (2.0 * draws[1] - 1.0)
    state[4] = HEIGHT / 2


@device
def _pong_observe(state: Any, observation: Any) -> None:
    for index in range(5):
        observation[index] = np.float32(state[index])


@device
def _pong_step(state: Any, choice: int, action: Any, draws: Any) -> tuple[float, bool]:
    direction = 0.0 if choice == 0 else (1.0 if choice == 1 else -1.0)
    state[4] = min(max(state[4] + PADDLE_SPEED * direction, PADDLE_HALF), HEIGHT - PADDLE_HALF)
    state[0] += state[2]
    state[1] += state[3]
    if state[1] < 0.0:
        state[1], state[3] = -state[1], -state[3]
    elif state[1] > HEIGHT:
        state[1], state[3] = 2.0 * HEIGHT - state[1], -state[3]
    if state[0] < 0.0:
        state[0], state[2] = -state[0], -state[2]
        return 0.0, False
    if state[0] < PADDLE_X:
        return 0.0, False
    offset = state[1] - state[4]
    if abs(offset) > PADDLE_HALF:
        return 0.0, True
    state[0], state[2] = 2.0 * PADDLE_X - state[0], -state[2]
    state[3] = min(max(state[3] + SPIN * offset, -MOST_VERTICAL), MOST_VERTICAL)
    return 1.0, False


PONG = Rules(
    name="pong",
    state_size=5,
    observation_size=5,
    action_size=0,
    draws=_pong_draws,
    start=_pong_start,
    observe=_pong_observe,
    number=no_number,
    step=_pong_step,
)

# -- Maze. State: the cell.


def _maze_draws(stream: np.random.Generator, limit: int) -> Array:
    return np.zeros(1)


@device
def _maze_start(state: Any, draws: Any) -> None:
    state[0] = 0.0


@device
def _maze_step(state: Any, choice: int, action: Any, draws: Any) -> tuple[float, bool]:
    cell = _NEXT_CELL[int(state[0]), choice]
    state[0] = cell
    return (GOAL_REWARD if cell == GOAL else STEP_REWARD), cell == GOAL


MAZE = Rules(
    name="maze",
    state_size=1,
    observation_size=SIZE * SIZE,
    action_size=0,
    draws=_maze_draws,
    start=_maze_start,
    observe=observe_one_hot,
    number=first_number,
    step=_maze_step,
)
