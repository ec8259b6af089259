"""A checkpoint file is read as it was written, or refused."""

from __future__ import annotations

import json

import numpy as np
import pytest
from dressage.errors import InvalidArgument
from dressage_trainer import checkpoints
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.numpy import save


def small():
    arrays = {
        "ppo/x": np.arange(3.0),
        "ppo/step": np.array(7, np.int32),
        "metrics/0": np.frombuffer(b"{}", np.uint8).copy(),
        "ppo/none": np.zeros((0, 2), np.float32),  # without a byte, its shape is told by the header alone
        "ppo/column": np.ones((2, 1), bool),
    }
    facts = {"members": [{"name": "a", "seed": 1, "discount": 0.99}], "updates": [2]}
    return checkpoints.Snapshot(update=2, env_step=512, facts=facts, arrays=arrays)


def same(one, other):
    def plain(snapshot):
        return {name: (a.dtype, a.shape, a.tobytes()) for name, a in snapshot.arrays.items()}

    heads = [(s.update, s.env_step, json.dumps(s.facts, sort_keys=True)) for s in (one, other)]
    return heads[0] == heads[1] and plain(one) == plain(other)


def refused_or_same(path):
    try:
        return same(checkpoints.read(path), small())
    except InvalidArgument as error:
        return error.reason == "CHECKPOINT_CORRUPT"


def test_a_checkpoint_reads_as_it_was_written(tmp_path):
    assert same(checkpoints.read(tmp_path / checkpoints.write(tmp_path, small())), small())


def test_the_next_checkpoint_deletes_what_a_killed_writer_left(tmp_path):
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "checkpoints/1.tmp").write_bytes(b"half")
    path = tmp_path / checkpoints.write(tmp_path, small())
    assert list(path.parent.iterdir()) == [path]


def test_no_flipped_bit_passes_unseen(tmp_path):
    path = tmp_path / checkpoints.write(tmp_path, small())
    whole, passed = path.read_bytes(), []
    for place in range(8 * len(whole)):
        data = bytearray(whole)
        data[place // 8] ^= 1 << place % 8
        path.write_bytes(data)
        if not refused_or_same(path):
            passed.append((place // 8, bytes(data[place // 8 - 20 : place // 8 + 20])))
    assert not passed


@settings(deadline=None)
@given(st.data())
def test_no_overwritten_bytes_pass_unseen(tmp_path_factory, data):
    root = tmp_path_factory.mktemp("checkpoints")
    path = root / checkpoints.write(root, small())
    whole = path.read_bytes()
    start = data.draw(st.integers(0, len(whole) - 1))
    new = data.draw(st.binary(min_size=1, max_size=16))
    path.write_bytes((whole[:start] + new + whole[start + len(new) :])[: len(whole)])
    assert refused_or_same(path)


def test_a_checkpoint_of_another_format_is_refused_by_its_name(tmp_path):
    path = tmp_path / checkpoints.write(tmp_path, small())
    with safe_open(path, framework="numpy") as file:
        metadata = file.metadata()
    assert metadata["format"] == "dressage.checkpoint/2"
    path.write_bytes(save(small().arrays, {**metadata, "format": "dressage.checkpoint/1"}))
    with pytest.raises(InvalidArgument, match=r"format is 'dressage\.checkpoint/1', not dressage\.checkpoint/2"):
        checkpoints.read(path)


def test_after_a_flipped_bit_in_the_facts_the_one_before_is_used(tmp_path):
    before = checkpoints.write(tmp_path, checkpoints.Snapshot(1, 256, small().facts, small().arrays))
    newest = checkpoints.write(tmp_path, small())
    data = (tmp_path / newest).read_bytes()
    (tmp_path / newest).write_bytes(data.replace(b"0.99", b"0.98"))
    snapshot, problems = checkpoints.read_newest(tmp_path, [newest, before])
    assert snapshot is not None and snapshot.update == 1
    (problem,) = problems
    assert "2.safetensors" in problem and "checksum" in problem
