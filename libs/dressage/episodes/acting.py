"""The kernel by which many policies act at once, each on its own observation."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from dressage.episodes.compiling import kernel
from dressage.episodes.numerics import bounded_action, first_largest, outputs


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
