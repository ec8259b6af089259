"""Builds the kernel that plays whole episodes by an environment's rules, and one that replays given actions."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from dressage.envs.rules import Rules
from dressage.episodes.compiling import device, kernel
from dressage.episodes.numerics import (
    bounded_action,
    first_largest,
    linear_outputs,
    outputs,
    pairwise_sum,
    table_action,
)


@functools.cache
def play_kernel(rules: Rules) -> Any:
    """Return ``play(weights, sizes, relu, normalization, clip, bounds, draws, limit, returns, lengths)``.

    It plays P candidates times E episodes and fills ``returns`` (P, E) and ``lengths`` (P, E). The policies are those of
    `Networks`; ``draws`` is (E, K). A length of -n means that the policy's n-th action was not a number, which ended the
    episode. A row depends on its candidate and its episode only.
    """
    start, observe, number, step = rules.start, rules.observe, rules.number, rules.step
    state_size, observation_size, action_size = rules.state_size, rules.observation_size, rules.action_size
    at_start, per_step = rules.draws_at_start, rules.draws_per_step

    @kernel(f"play_{rules.name}")
    def play(
        weights: Any,
        sizes: Any,
        relu: bool,
        normalization: Any,
        clip: float,
        bounds: Any,
        draws: Any,
        limit: int,
        returns: Any,
        lengths: Any,
    ) -> None:
        table, linear = len(sizes) == 0, len(sizes) == 2 and normalization.shape[1] == 0
        width = 1
        for size in sizes:
            width = max(width, size)
        state, observation = np.zeros(state_size), np.zeros(observation_size)
        x, y = np.zeros(width, np.float32), np.zeros(width, np.float32)
        action, rewards = np.zeros(max(action_size, 1), np.float32), np.zeros(limit)
        for candidate in range(returns.shape[0]):
            own = weights[candidate]
            for episode in range(returns.shape[1]):
                chance, steps, ended = draws[episode], 0, False
                start(state, chance)
                while not ended and steps < limit:
                    # Branches, not a function: a call that is not inlined passes seven words for each array.
                    if table:
                        choice = table_action(own, number(state), action_size, action)
                    else:
                        observe(state, observation)
                        if linear:
                            linear_outputs(own, sizes[0], sizes[1], observation, y)
                        else:
                            outputs(own, sizes, relu, normalization, clip, observation, x, y)
                        if action_size == 0:
                            choice = first_largest(y, sizes[-1])
                        else:
                            choice = bounded_action(y, bounds, action_size, action)
                    if choice < 0:
                        break
                    reward, ended = step(state, choice, action, chance, at_start + per_step * steps)
                    rewards[steps] = reward
                    steps += 1
                returns[candidate, episode] = pairwise_sum(rewards, steps)
                lengths[candidate, episode] = steps if ended or steps == limit else -1 - steps

    return play


@functools.cache
def replay_kernel(rules: Rules) -> Any:
    """Return ``replay(draws, choices, actions, observations, numbers, rewards, terminated)``, which plays given actions.

    It fills observations (T + 1, D), discrete observations (T + 1,), rewards (T,) and terminations (T,), and returns the
    number of steps until the first termination.
    """
    start, observe, number, step, state_size = rules.start, rules.observe, rules.number, rules.step, rules.state_size
    at_start, per_step = rules.draws_at_start, rules.draws_per_step

    @device
    def replay(
        draws: Any,
        choices: Any,
        actions: Any,
        observations: Any,
        numbers: Any,
        rewards: Any,
        terminated: Any,
    ) -> int:
        state = np.zeros(state_size)
        start(state, draws)
        observe(state, observations[0])
        numbers[0] = number(state)
        for index in range(len(choices)):
            first = at_start + per_step * index
            rewards[index], terminated[index] = step(state, choices[index], actions[index], draws, first)
            observe(state, observations[index + 1])
            numbers[index + 1] = number(state)
            if terminated[index]:
                return index + 1
        return len(choices)

    return replay
