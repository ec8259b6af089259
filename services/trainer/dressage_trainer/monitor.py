"""Warnings computed from a member's metrics (DESIGN: warnings are computed, not guessed).

Each is raised at most once for a member, with the figures that it rests on.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

Row = Mapping[str, float | None]

_WINDOW = 5
_DOMINANT_SHARE = 0.9
_COLLAPSED_STD = 0.05
_KL_SPIKE = 0.2
_VALUE_GROWTH = 100.0
_COLLAPSED_ENTROPY = 0.01
_PLATEAU_ROWS = 45
_PLATEAU_CHANGE = 0.03
_KEPT = 900


@dataclass(frozen=True)
class Warn:
    """A stable reason and what it means here."""

    reason: str
    message: str


class Monitor:
    """Watches one member's rows."""

    def __init__(self) -> None:
        self._raised: set[str] = set()
        self._shares: deque[tuple[str, float]] = deque(maxlen=_WINDOW)
        self._value_loss: deque[float] = deque(maxlen=_WINDOW)
        self._first_entropy: float | None = None
        self._returns: list[float] = []
        self._stride, self._rows = 1, 0

    def see(self, row: Row) -> list[Warn]:
        """The warnings that this row gives rise to."""
        found = [*self._dominant_term(row), *self._policy(row), *self._value(row), *self._plateau(row)]
        fresh = [warn for warn in found if warn.reason not in self._raised]
        self._raised.update(warn.reason for warn in fresh)
        return fresh

    def _dominant_term(self, row: Row) -> list[Warn]:
        prefix = "term_magnitude/"
        # A term of magnitude 0, a bonus that is never reached, is dominated most of all.
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
        return [Warn("REWARD_TERM_DOMINATES", f"the term {name} is {share:.0%} of the reward's magnitude")]

    def _policy(self, row: Row) -> list[Warn]:
        found = []
        std, kl = row.get("std"), row.get("approx_kl")
        if std is not None and std < _COLLAPSED_STD:
            found.append(Warn("ENTROPY_COLLAPSE", f"the policy's standard deviation fell to {std:.3f}"))
        entropy = row.get("entropy")
        if std is None and entropy is not None:
            # Numbered actions: the entropy itself, which is at first near the logarithm of their number.
            first = self._first_entropy = entropy if self._first_entropy is None else self._first_entropy
            if first > 0 and entropy < _COLLAPSED_ENTROPY * first:
                found.append(Warn("ENTROPY_COLLAPSE", f"the policy's entropy fell to {entropy:.3g}, from {first:.3g}"))
        if kl is not None and kl > _KL_SPIKE:
            found.append(Warn("KL_SPIKE", f"an update changed the policy by a KL divergence of {kl:.2f}"))
        return found

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
        """The last third of the curve beside the third before it, by the curve's own height: no absolute bound."""
        value = row.get("episode_return")
        if value is None:
            return []
        if self._rows % self._stride == 0:
            self._returns.append(value)
        self._rows += 1
        if len(self._returns) > _KEPT:  # a long run is kept coarser, not longer
            self._returns, self._stride = self._returns[::2], 2 * self._stride
        count = len(self._returns)
        if count < _PLATEAU_ROWS:
            return []
        third = count // 3
        before, last = self._returns[-2 * third : -third], self._returns[-third:]
        height = max(self._returns) - min(self._returns)
        change = sum(last) / third - sum(before) / third
        if height > 0 and abs(change) > _PLATEAU_CHANGE * height:
            return []
        text = f"over the last third the return changed by {change:.3g}, where the whole curve spans {height:.3g}"
        return [Warn("PLATEAU", text)]
