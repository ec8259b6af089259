"""Compute warnings from a member's metrics.

Each is raised at most once for a member, with the figures that it is based on.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

Row = Mapping[str, float | None]

_WINDOW = 5
_DOMINANT_SHARE = 0.9
_COLLAPSED_STD = 0.05
_KL_SPIKE = 0.2
_VALUE_GROWTH = 100.0
_COLLAPSED_ENTROPY = 0.01
_BLOCKS = 32
_PLATEAU_ROWS = 2 * _BLOCKS
_PLATEAU_CHANGE = 0.03
# In standard errors of the change between two quarters, which is also that of an eighth's mean.
_CHANCE = 1.5  # change of a level curve that chance explains
_MISSED = 2.0  # distance between the change and a steady rise that rules the rise out
_NOISE = 4.5  # span of eight equal means that chance explains
_KEPT = 900


@dataclass(frozen=True)
class Warn:
    """A stable reason, and a message with the figures."""

    reason: str
    message: str


class Monitor:
    """Watches one member's rows.

    :param steps: environment steps of the whole training; the row that reaches them is the last.
    """

    def __init__(self, *, steps: int) -> None:
        self._steps = steps
        self._raised: set[str] = set()
        self._shares: deque[tuple[str, float]] = deque(maxlen=_WINDOW)
        self._value_loss: deque[float] = deque(maxlen=_WINDOW)
        self._first_entropy: float | None = None
        self._returns: list[float] = []
        self._stride, self._rows = 1, 0

    def see(self, row: Row) -> list[Warn]:
        """Return the new warnings after this row."""
        warnings = [*self._dominant_term(row), *self._policy(row), *self._value(row), *self._plateau(row)]
        fresh = [warn for warn in warnings if warn.reason not in self._raised]
        self._raised.update(warn.reason for warn in fresh)
        return fresh

    def _dominant_term(self, row: Row) -> list[Warn]:
        prefix = "term_magnitude/"
        # A term of magnitude 0 counts too, such as a bonus that is never reached.
        sizes = {n[len(prefix) :]: value for n, value in row.items() if n.startswith(prefix) and value is not None}
        total = sum(sizes.values())
        if len(sizes) < 2 or total == 0:
            return []
        name = max(sizes, key=lambda key: sizes[key])
        self._shares.append((name, sizes[name] / total))
        full = len(self._shares) == _WINDOW
        if not full or any(seen != name or share <= _DOMINANT_SHARE for seen, share in self._shares):
            return []
        share = self._shares[-1][1]
        return [Warn("REWARD_TERM_DOMINATES", f"the term {name} is {100 * share:.0f} % of the reward's magnitude")]

    def _policy(self, row: Row) -> list[Warn]:
        warnings = []
        std, kl = row.get("std"), row.get("approx_kl")
        if std is not None and std < _COLLAPSED_STD:
            warnings.append(Warn("ENTROPY_COLLAPSE", f"the policy's standard deviation fell to {std:.3f}"))
        entropy = row.get("entropy")
        if std is None and entropy is not None:
            # Discrete actions: the entropy itself, which at first is near the logarithm of their number.
            first = self._first_entropy = entropy if self._first_entropy is None else self._first_entropy
            if first > 0 and entropy < _COLLAPSED_ENTROPY * first:
                message = f"the policy's entropy fell to {entropy:.3g}, from {first:.3g}"
                warnings.append(Warn("ENTROPY_COLLAPSE", message))
        if kl is not None and kl > _KL_SPIKE:
            warnings.append(Warn("KL_SPIKE", f"an update changed the policy by a KL divergence of {kl:.2f}"))
        return warnings

    def _value(self, row: Row) -> list[Warn]:
        loss = row.get("value_loss")
        if loss is None:
            return []
        before = sorted(self._value_loss)
        self._value_loss.append(loss)
        if len(before) < _WINDOW or loss <= _VALUE_GROWTH * max(before[len(before) // 2], 1e-3):
            return []
        return [Warn("VALUE_DIVERGENCE", f"the value loss rose to {loss:.3g}, from {before[len(before) // 2]:.3g}")]

    def _plateau(self, row: Row) -> list[Warn]:
        """Compare the last quarter of training with the one before, in relation to their noise.

        Computed once, at the end of training: a short curve's span is mostly noise, and any curve has a level part somewhere.
        """
        value, step = row.get("episode_return"), row.get("step")
        if value is not None:
            if self._rows % self._stride == 0:
                self._returns.append(value)
            self._rows += 1
            if len(self._returns) > _KEPT:  # a long run is kept at a coarser resolution
                self._returns, self._stride = self._returns[::2], 2 * self._stride
        if step is None or step < self._steps or len(self._returns) < _PLATEAU_ROWS:
            return []
        edges = np.linspace(0, len(self._returns), _BLOCKS + 1).astype(int)
        # Means of blocks, not rows: neighbouring rows are correlated, and their spread would understate the error.
        blocks = np.add.reduceat(np.array(self._returns), edges[:-1]) / np.diff(edges)
        before, last = blocks[_BLOCKS // 2 : -_BLOCKS // 4], blocks[-_BLOCKS // 4 :]
        change = float(last.mean() - before.mean())
        error = float(np.sqrt((before.var(ddof=1) + last.var(ddof=1)) / len(last)))
        span = float(np.ptp(blocks.reshape(8, -1).mean(axis=1)))
        level = abs(change) <= _PLATEAU_CHANGE * span + _CHANCE * error
        # A steady rise gains a quarter of its height from one quarter to the next, which this excludes.
        no_rise = abs(change) + _MISSED * error <= span / 4
        if not (level and no_rise) and span > _NOISE * error:
            return []
        amounts = f"by {_amount(change)} (standard error {_amount(error)}) of the {_amount(span)} that its curve spans"
        return [Warn("PLATEAU", f"the return changed little from the third to the last quarter of training: {amounts}")]


def _amount(value: float) -> str:
    """Return a return as text: `0.093`, `93.7`, `2,080`."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
