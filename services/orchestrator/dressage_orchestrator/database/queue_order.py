"""The order of the waiting sessions in memory: a place is a bisection, and a change costs what changed, not what waits."""

from __future__ import annotations

import threading
import time
from bisect import bisect_left, insort
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

Key = tuple[int, str]
"""Time of entry in microseconds, and id: the order of the queue."""

NOTHING: Mapping[str, int] = MappingProxyType({})


@dataclass(frozen=True)
class QueueChanges:
    """Sessions that entered or left the queue.

    :param number: number of the latest of these changes.
    :param entries: time of entry by session; 0: it left.
    :param whole: whether the entries are the whole queue, and not a difference.
    """

    number: int
    entries: Mapping[str, int] = field(default_factory=dict)
    whole: bool = False


class QueueOrder:
    """The sessions that wait, as of a change of the queue. May be used by several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._keys: list[Key] = []
        self._since: dict[str, int] = {}
        self.number = -1
        """Number of the latest applied change; negative before the first one."""
        self.read_time = -float("inf")
        """When the whole queue was last applied, on the monotonic clock."""

    def apply(self, changes: QueueChanges) -> None:
        """Apply all changes since `number`, unless later ones were applied meanwhile."""
        with self._lock:
            if changes.number < self.number:
                return
            if changes.whole:
                self._since = dict(changes.entries)
                self._keys = sorted((since, session) for session, since in self._since.items())
                self.read_time = time.monotonic()
            else:
                for session, since in changes.entries.items():
                    self._set(session, since)
            self.number = changes.number

    def _set(self, session: str, since: int) -> None:
        before = self._since.pop(session, 0)
        if before:
            del self._keys[bisect_left(self._keys, (before, session))]
        if since:
            self._since[session] = since
            insort(self._keys, (since, session))

    def rank(self, key: Key, pending: Mapping[str, int] = NOTHING) -> tuple[int, int]:
        """Return the place of a session, from 1, and the length of the queue.

        :param pending: entries that count although they are not applied.
        """
        with self._lock:
            place, length = bisect_left(self._keys, key) + 1, len(self._keys)
            for session, since in pending.items():
                before = self._since.get(session, 0)
                if since != before:
                    place += _precedes(since, session, key) - _precedes(before, session, key)
                    length += (since > 0) - (before > 0)
        return place, max(place, length)

    def rank_of(self, session: str) -> tuple[int, int] | None:
        """Return the place and the length for a session's id; None if it does not wait."""
        since = self._since.get(session)
        return None if since is None else self.rank((since, session))


def _precedes(since: int, session: str, key: Key) -> bool:
    return since > 0 and (since, session) < key
