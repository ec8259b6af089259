"""The clock, which is passed in wherever time is read."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

from google.protobuf.timestamp_pb2 import Timestamp

DAY = 86_400.0
"""Seconds of a day."""

Clock = Callable[[], datetime]


def system_clock() -> datetime:
    """Current time, UTC."""
    return datetime.now(tz=UTC)


def timestamp(moment: datetime) -> Timestamp:
    """Convert a time to a protobuf timestamp."""
    stamp = Timestamp()
    stamp.FromDatetime(moment)
    return stamp


def micros(moment: datetime) -> int:
    """Microseconds since the epoch, by which the database sorts."""
    return int(moment.timestamp() * 1_000_000)
