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

    def see(self, row: Row) -> list[Warn]:
        """The warnings that this row gives rise to."""
        found = [*self._dominant_term(row), *self._policy(row), *self._value(row)]
        fresh = [warn for warn in found if warn.reason not in self._raised]
        self._raised.update(warn.reason for warn in fresh)
        return fresh

    def _dominant_term(self, row: Row) -> list[Warn]:
        prefix = "term_magnitude/"
        sizes = {name[len(prefix) :]: value for name, value in row.items() if name.startswith(prefix) and value}
        if len(sizes) < 2:
            return []
        name = max(sizes, key=lambda key: sizes[key] or 0.0)
        self._shares.append((name, (sizes[name] or 0.0) / sum(value or 0.0 for value in sizes.values())))
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
