"""The kernels of the engines: compiled functions of an environment's rules and of policies.

`compiled_rules` compiles an environment's rules; kernels that play whole episodes or steps of many call them.
"""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import Any

import numpy as np

from dressage.envs.rules import Rules, rules_of
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
def compiled_rules(env_id: str) -> Rules:
    """Return the rules of an environment that has some, their functions compiled."""
    rules = rules_of(env_id)
    assert rules is not None
    start, step, observe, number = map(_device, (rules.start, rules.step, rules.observe, rules.number))
    return replace(rules, start=start, step=step, observe=observe, number=number)


_device = functools.cache(device)
"""Environments that share a function share its machine code."""


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
def lockstep_kernels(rules: Rules) -> tuple[Any, Any]:
    """Return ``start(draws, states, observations)`` for all rows and ``step(draws, states, rows, lengths, choices,
    boxes, observations, rewards, ends)`` for some, both by an environment's rules."""
    begin, observe, advance = rules.start, rules.observe, rules.step
    at_start, per_step = rules.draws_at_start, rules.draws_per_step

    @kernel(f"start_{rules.name}")
    def start(draws: Any, states: Any, observations: Any) -> None:
        for row in range(len(states)):
            begin(states[row], draws[row])
            observe(states[row], observations[row])

    @kernel(f"step_{rules.name}")
    def step(
        draws: Any,
        states: Any,
        rows: Any,
        lengths: Any,
        choices: Any,
        boxes: Any,
        observations: Any,
        rewards: Any,
        ends: Any,
    ) -> None:
        for index in range(len(rows)):
            row = rows[index]
            first = at_start + per_step * lengths[index]
            rewards[index], ends[index] = advance(states[row], choices[index], boxes[index], draws[row], first)
            observe(states[row], observations[row])

    return start, step


@functools.cache
def act_kernel() -> Any:
    """Return ``act(weights, sizes, relu, normalization, clip, bounds, candidates, observations, actions, choices)``.

    The policies are those of `dressage.episodes.networks.Networks`, none a table. Row r is the policy ``candidates[r]`` on
    ``observations[r]``; its continuous action goes to ``actions[r]`` (A,) float32, or its discrete one to ``choices[r]``. The
    result is the first row whose action is not a number, else -1. A row depends on its policy and observation only.
    """

    @kernel("act")
    def act(
        weights: Any,
        sizes: Any,
        relu: bool,
        normalization: Any,
        clip: float,
        bounds: Any,
        candidates: Any,
        observations: Any,
        actions: Any,
        choices: Any,
    ) -> int:
        width = 1
        for size in sizes:
            width = max(width, size)
        x, y = np.zeros(width, np.float32), np.zeros(width, np.float32)
        components = bounds.shape[1]
        for row in range(len(candidates)):
            outputs(weights[candidates[row]], sizes, relu, normalization, clip, observations[row], x, y)
            if components == 0:
                choices[row] = first_largest(y, sizes[-1])
            elif bounded_action(y, bounds, components, actions[row]) < 0:
                return row
        return -1

    return act
