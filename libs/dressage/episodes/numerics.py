"""Sums, and outputs of small networks, in a fixed order of operations."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dressage.episodes.compiling import device

_BLOCK = 128
_LANES = 8
_DEPTH = 128


@device
def _block_sum(values: Any, first: int, count: int) -> Any:
    """Return the sum of at most `_BLOCK` values."""
    total = 0.0
    if count < _LANES:
        for index in range(first, first + count):
            total += values[index]
        return total
    r0, r1, r2, r3 = values[first], values[first + 1], values[first + 2], values[first + 3]
    r4, r5, r6, r7 = values[first + 4], values[first + 5], values[first + 6], values[first + 7]
    end = first + count - count % _LANES
    for index in range(first + _LANES, end, _LANES):
        r0 += values[index]
        r1 += values[index + 1]
        r2 += values[index + 2]
        r3 += values[index + 3]
        r4 += values[index + 4]
        r5 += values[index + 5]
        r6 += values[index + 6]
        r7 += values[index + 7]
    total = ((r0 + r1) + (r2 + r3)) + ((r4 + r5) + (r6 + r7))
    for index in range(end, first + count):
        total += values[index]
    return total


@device
def pairwise_sum(values: Any, count: int) -> Any:
    """Return the sum of the first ``count`` values in the order of NumPy's ``sum`` of a contiguous array.

    NumPy halves the array, down to blocks, and adds the halves' sums. The stack replaces its recursion.
    """
    if count <= _BLOCK:
        return _block_sum(values, 0, count)
    parts, sums = np.zeros((_DEPTH, 3), np.int64), np.zeros(_DEPTH)
    parts[0, 1] = count
    height, ready = 1, 0
    while height:
        height -= 1
        first, size, halved = parts[height]
        if size <= _BLOCK:
            sums[ready] = _block_sum(values, first, size)
            ready += 1
        elif halved:
            ready -= 1
            sums[ready - 1] += sums[ready]
        else:
            half = size // 2
            half -= half % _LANES
            parts[height] = (first, size, 1)
            parts[height + 1] = (first + half, size - half, 0)
            parts[height + 2] = (first, half, 0)
            height += 3
    return sums[0]


@device
def linear_outputs(weights: Any, inputs: Any, units: Any, observation: Any, y: Any) -> None:
    """Compute the outputs of a single layer on an observation that is not normalised: as `outputs`, and twice as fast."""
    # Unsigned numbers spare the test for negative indices.
    columns, rows, place = np.uint64(inputs), np.uint64(units), np.uint64(0)
    for unit in range(rows):
        total = weights[place] * np.float32(observation[0])
        for index in range(np.uint64(1), columns):
            total += weights[place + index] * np.float32(observation[index])
        y[unit] = total + weights[rows * columns + unit]
        place += columns


@device
def outputs(
    weights: Any, sizes: Any, relu: bool, normalization: Any, clip: float, observation: Any, x: Any, y: Any
) -> None:
    """Compute a network's outputs in single precision; they are in ``y[:outputs]`` afterwards.

    :param weights: of one network: for each layer the matrix (out, in) row by row, then the bias.
    :param sizes: of the layers, the input first.
    :param relu: the activation of hidden layers; otherwise tanh.
    :param normalization: (2, D) mean and factor, in double precision; (2, 0): none.
    :param observation: (D,) double precision.
    :param x: scratch of single precision, as long as the widest layer.
    :param y: the same.
    """
    normalized, last = normalization.shape[1] > 0, len(sizes) - 1
    for index in range(sizes[0]):
        value = observation[index]
        if normalized:
            value = (value - normalization[0, index]) * normalization[1, index]
            value = min(max(value, -clip), clip)
        x[index] = value
    place = 0
    for layer in range(1, last + 1):
        inputs, units = sizes[layer - 1], sizes[layer]
        biases = place + units * inputs
        for unit in range(units):
            total = weights[place] * x[0]
            for index in range(1, inputs):
                total += weights[place + index] * x[index]
            y[unit] = total + weights[biases + unit]
            place += inputs
        if layer < last:
            for unit in range(units):
                x[unit] = max(y[unit], np.float32(0)) if relu else np.float32(math.tanh(y[unit]))
        place += units


@device
def first_largest(values: Any, count: int) -> int:
    """Return the index of the largest value, the first of equal ones, as NumPy's ``argmax``: NaN is the largest."""
    best, largest = 0, values[0]
    for index in range(1, count):
        value = values[index]
        if not value <= largest and not math.isnan(largest):
            best, largest = index, value
    return best


@device
def bounded_action(values: Any, bounds: Any, count: int, action: Any) -> int:
    """Set the action to the values within their bounds and return 0; -1 where one is not a number."""
    for index in range(count):
        value = values[index]
        if math.isnan(value):
            return -1
        if value < bounds[0, index]:
            value = bounds[0, index]
        elif value > bounds[1, index]:
            value = bounds[1, index]
        action[index] = value
    return 0


@device
def table_action(table: Any, row: int, count: int, action: Any) -> int:
    """Return the table's choice for a discrete observation, or set the action (``count`` > 0) and return 0."""
    if count == 0:
        return int(table[row])
    for index in range(count):
        action[index] = table[row * count + index]
    return 0
