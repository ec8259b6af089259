"""Event files are what TensorBoard's own message definitions and checksums require."""

from __future__ import annotations

import math
import subprocess
import sys

import pytest
from dressage.training.eventfile import EventFile, crc32c
from dressage_trainer.backends import metrics

from tests.unit.trainer.event_files import events_by_tensorboard_x


def test_the_checksum_equals_the_published_vectors():
    # RFC 3720, appendix B.4: 32 bytes of zeroes, and the digits of the polynomial's usual check value.
    assert crc32c(bytes(32)) == 0x8A9136AA
    assert crc32c(b"123456789") == 0xE3069283


def test_another_reader_reads_what_was_written(tmp_path):
    path = tmp_path / "events.out.tfevents.1"
    file = EventFile(path, wall_time=1.5)
    rows = [(step * 1000, {"train/loss": 0.5 * step, "rollout/episode_return": -3.25}) for step in range(1, 30)]
    for step, scalars in rows:
        file.add(scalars, step=step, wall_time=2.0 + step)
    file.close()

    events = events_by_tensorboard_x(path)
    assert events[0].file_version == "brain.Event:2"
    assert events[0].wall_time == 1.5
    scalars_read = [(e.step, {value.tag: value.simple_value for value in e.summary.value}) for e in events[1:]]
    assert scalars_read == rows


def test_a_value_beyond_float32_is_infinite(tmp_path):
    event_pb2 = pytest.importorskip("tensorboardX.proto.event_pb2")
    file = EventFile(path := tmp_path / "events.out.tfevents.1", wall_time=1.5)
    empty = path.stat().st_size
    scalars = {"a": 1e39, "b": -1e39, "c": 3.4028235e38, "d": 1e-60}
    file.add(scalars, step=1, wall_time=2.0)
    file.close()
    event = event_pb2.Event.FromString(path.read_bytes()[empty + 12 : -4])
    scalars_read = {value.tag: value.simple_value for value in event.summary.value}
    assert scalars_read == {"a": math.inf, "b": -math.inf, "c": pytest.approx(3.4028235e38), "d": 0.0}


def test_a_resumed_runs_event_file_replaces_the_one_before(tmp_path, monkeypatch):
    store = {}
    for attempt, now in enumerate((1_000.0, 2_000.0)):  # the second one on another machine, with an empty folder
        monkeypatch.setattr(metrics.time, "time", lambda now=now: now)
        member = metrics.MemberMetrics(tmp_path / str(attempt), earlier=b'{"step": 10, "std": 0.5}\n' * attempt)
        member.add({"step": 20 - 10 * (not attempt), "std": 0.5})
        member.close()
        store |= {path.name: path.read_bytes() for path in (tmp_path / str(attempt) / "tb").iterdir()}
    ((name, data),) = store.items()
    assert "tfevents" in name and data.count(b"train/std") == 2


def test_the_learner_imports_no_torch_and_no_tensorboard():
    code = (
        "import sys, dressage_trainer.learner\n"
        "unwanted = {'torch', 'tensorboardX', 'gymnasium', 'stable_baselines3', 'grpc'} & set(sys.modules)\n"
        "assert not unwanted, unwanted"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
