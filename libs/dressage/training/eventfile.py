"""TensorBoard event files of scalars, written directly.

An event file is a sequence of TFRecords, each a serialised ``Event`` message. Writing those few fields takes a page.
Libraries for it start processes or threads, which the sandbox forbids, or import torch where it is installed, which costs
the learner seconds and 300 MB.

The format: a record is its length (uint64), the masked CRC-32C of that, the data, the masked CRC-32C of the data. ``Event`` has
wall_time = 1 (double), step = 2 (int64), file_version = 3 (string), summary = 5; a summary's value = 1 has tag = 1 and
simple_value = 2 (float).
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO

_FLUSH_EVERY = 20

FILE_NAME = "events.out.tfevents.0.dressage"
"""Always the same: another attempt's file replaces the one before. With two files each point would be shown twice."""

_VARINT, _DOUBLE, _BYTES, _FLOAT = 0, 1, 2, 5


class EventFile:
    """Writes one event file; scalars of a step go into one event.

    :param file: a file to create, or an open one; TensorBoard reads files whose names contain ``tfevents``.
    :param wall_time: seconds since the epoch, for the header.
    """

    def __init__(self, file: Path | BinaryIO, *, wall_time: float) -> None:
        self._file: BinaryIO = file.open("wb") if isinstance(file, Path) else file
        self._unflushed = 0
        self._record(_field(1, _DOUBLE, struct.pack("<d", wall_time)) + _text(3, b"brain.Event:2"))
        self._file.flush()

    def add(self, scalars: Mapping[str, float], *, step: int, wall_time: float) -> None:
        """Append the scalars of one step."""
        summary = b"".join(
            _text(1, _text(1, tag.encode()) + _field(2, _FLOAT, _single(value))) for tag, value in scalars.items()
        )
        head = _field(1, _DOUBLE, struct.pack("<d", wall_time)) + _field(2, _VARINT, _varint(step))
        self._record(head + _text(5, summary))
        self._unflushed += 1
        if self._unflushed >= _FLUSH_EVERY:
            self._unflushed = 0
            self._file.flush()

    def close(self) -> None:
        """Flush and close the file."""
        self._file.close()

    def _record(self, data: bytes) -> None:
        length = struct.pack("<Q", len(data))
        self._file.write(length + _masked_crc(length) + data + _masked_crc(data))


def _single(value: float) -> bytes:
    """Return ``value`` as float32.

    A value beyond its range becomes infinite, which TensorBoard marks on the curve: a gap would hide the rows in which a
    reward diverged.
    """
    try:
        return struct.pack("<f", value)
    except OverflowError:
        return struct.pack("<f", math.copysign(math.inf, value))


def _field(number: int, kind: int, payload: bytes) -> bytes:
    return _varint(number << 3 | kind) + payload


def _text(number: int, payload: bytes) -> bytes:
    return _field(number, _BYTES, _varint(len(payload)) + payload)


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _crc_table() -> list[int]:
    table = []
    for index in range(256):
        crc = index
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
        table.append(crc)
    return table


_TABLE = _crc_table()


def crc32c(data: bytes) -> int:
    """Return the CRC-32C (Castagnoli) of ``data``."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ _TABLE[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


def _masked_crc(data: bytes) -> bytes:
    crc = crc32c(data)
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)
