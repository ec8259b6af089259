"""Detects states that a loop saw before.

The loop detector ends an episode when a WHILE node sees a state of the world again for which its condition held before, at
any time in the episode. States are compared by 64-bit hashes: the part of the map is kept incrementally (Zobrist keys), and
the rest is added when a loop is tested. An episode records at most ``MAX_SEEN`` (2**14) states, so that a false repeat has a
probability of at most 2**27 / 2**64 < 1e-11 in an episode that records all of them, and 3e-16 in one with 100 states. The
table is never cleared: entries carry the episode's number.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dressage.episodes.compiling import allocation_free, device

TABLE = 1 << 15
MAX_SEEN = TABLE // 2
ROWS = TABLE + MAX_SEEN
"""Rows of the table; those above TABLE hold keys while it grows."""
SMALL = 1 << 9
"""Rows in use at the beginning of an episode."""


def hash_keys(cells: int, contents: int, headings: int = 4) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """Return the keys of (cell, content) [cells, contents] and of (cell, heading) [cells * headings]."""
    random = np.random.Generator(np.random.PCG64(20261123))
    return (
        random.integers(0, 2**64, (cells, contents), np.uint64),
        random.integers(0, 2**64, cells * headings, np.uint64),
    )


@allocation_free(inline=True)
def seen_before(table: Any, book: Any, key: int) -> bool:
    """Record a key of the current episode; return whether it was recorded before.

    :param table: uint64[ROWS, 2]: keys and the number of the episode that recorded them.
    :param book: uint64[3]: number of the episode, mask of the part of the table in use, keys recorded.
    """
    mask = book[1]
    slot = (key >> np.uint64(20)) & mask
    while table[slot, 1] == book[0]:
        if table[slot, 0] == key:
            return True
        slot = (slot + np.uint64(1)) & mask
    table[slot, 0] = key
    table[slot, 1] = book[0]
    book[2] += np.uint64(1)
    if book[2] + book[2] > mask:
        _grow(table, book)
    return False


@device
def _grow(table: Any, book: Any) -> None:
    """Use four times as much of the table; the keys recorded so far move to their new places."""
    mask, old = book[1], book[0]
    if mask + np.uint64(1) >= np.uint64(TABLE):
        return
    size: Any = np.int64(mask) + 1
    n = 0
    for i in range(size):
        if table[i, 1] == old:
            table[TABLE + n, 0] = table[i, 0]
            n += 1
    book[0] += np.uint64(1)
    book[1] = np.uint64(min(size * 4, TABLE) - 1)
    for i in range(n):
        key = table[TABLE + i, 0]
        slot = (key >> np.uint64(20)) & book[1]
        while table[slot, 1] == book[0]:
            slot = (slot + np.uint64(1)) & book[1]
        table[slot, 0] = key
        table[slot, 1] = book[0]
