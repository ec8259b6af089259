"""Reads TensorBoard's event files by two implementations that are not ours."""

from __future__ import annotations

import struct

import pytest


def events_by_tensorboard_x(path):
    """All events of a file, by tensorboardX's message definitions and checksums."""
    event_pb2 = pytest.importorskip("tensorboardX.proto.event_pb2")
    masked = pytest.importorskip("tensorboardX.record_writer").masked_crc32c
    data, events = path.read_bytes(), []
    while data:
        (length,) = struct.unpack("<Q", data[:8])
        assert struct.unpack("<I", data[8:12])[0] == masked(data[:8])
        body = data[12 : 12 + length]
        assert struct.unpack("<I", data[12 + length : 16 + length])[0] == masked(body)
        events.append(event_pb2.Event.FromString(body))
        data = data[16 + length :]
    return events


def scalars(folder, reader):
    """{step: {tag: value}} of all event files in a folder, by ``tensorboardX`` or by ``tensorboard`` itself."""
    found: dict[int, dict[str, float]] = {}
    if reader == "tensorboardX":
        for path in folder.iterdir():
            for event in events_by_tensorboard_x(path):
                for value in event.summary.value:
                    found.setdefault(event.step, {})[value.tag] = value.simple_value
        return found
    module = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    board = module.EventAccumulator(str(folder), size_guidance={"scalars": 0}).Reload()
    for tag in board.Tags()["scalars"]:
        for point in board.Scalars(tag):
            found.setdefault(point.step, {})[tag] = point.value
    return found
