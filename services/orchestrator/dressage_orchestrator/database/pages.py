"""Pages of rows, bounded by count and by bytes.

A row holds a message of any size that its owner chose. The sizes are read first, because a database does not read the bytes to
count them, and then as many rows as fit into a page.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Generic, NamedTuple, TypeVar

import sqlalchemy as sa

from dressage_orchestrator.database.engine import ReadTransaction

T = TypeVar("T")

PAGE_BYTES = 4 * 1024 * 1024
"""Stored bytes of a page with more than one entry: a quarter of the largest message that clients accept."""


class Page(NamedTuple, Generic[T]):
    """Entries of a list, and whether more follow."""

    entries: list[T]
    more: bool


def fitting(sizes: Sequence[int]) -> int:
    """Return how many entries of these sizes fit into a page: at least one, if there is one."""
    total = 0
    for count, size in enumerate(sizes):
        total += size
        if total > PAGE_BYTES:
            return max(1, count)
    return len(sizes)


def read(tx: ReadTransaction, query: sa.Select[Any], size: Any, *, limit: int) -> Page[Any]:
    """Read the rows of a page.

    :param query: ordered, without a limit.
    :param size: the bytes of a row, as an expression.
    :param limit: largest number of rows.
    """
    sized = query.with_only_columns(size, maintain_column_froms=True).limit(limit + 1)
    sizes = [int(value) for value in tx.execute(sized).scalars()]
    count = fitting(sizes[:limit])
    rows = list(tx.execute(query.limit(count))) if count else []
    return Page(rows, more=len(sizes) > count)
