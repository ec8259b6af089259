"""Time, passed in wherever it is read."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

from google.protobuf.timestamp_pb2 import Timestamp

Clock = Callable[[], datetime]


def system_clock() -> datetime:
    """Now, UTC."""
    return datetime.now(tz=UTC)


def timestamp(moment: datetime) -> Timestamp:
    """The moment as a protobuf timestamp."""
    stamp = Timestamp()
    stamp.FromDatetime(moment)
    return stamp


def micros(moment: datetime) -> int:
    """Microseconds since the epoch: what the database orders by."""
    return int(moment.timestamp() * 1_000_000)
