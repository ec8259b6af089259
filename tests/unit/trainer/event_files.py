"""Read TensorBoard's event files with two implementations that are not ours."""

from __future__ import annotations

import struct

import pytest


def events_by_tensorboard_x(path):
    """Return all events of a file, read with tensorboardX's message definitions and checksums."""
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
    """{step: {tag: value}} of all event files in a folder, read with ``tensorboardX`` or ``tensorboard`` itself."""
    values: dict[int, dict[str, float]] = {}
    if reader == "tensorboardX":
        for path in folder.iterdir():
            for event in events_by_tensorboard_x(path):
                for scalar in event.summary.value:
                    values.setdefault(event.step, {})[scalar.tag] = scalar.simple_value
        return values
    module = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    board = module.EventAccumulator(str(folder), size_guidance={"scalars": 0}).Reload()
    for tag in board.Tags()["scalars"]:
        for point in board.Scalars(tag):
            values.setdefault(point.step, {})[tag] = point.value
    return values
