"""Evaluations left to the next attempt are read as they were written, or refused."""

from __future__ import annotations

import numpy as np
import pytest
from dressage.sandbox.pipe import ProtocolError, encode
from dressage_trainer import unfinished
from dressage_trainer.messages import EvaluateMessage, MemberPolicy, WarningMessage


def message(step, size=3):
    card = {"environment": "Hopper-v5", "hidden_sizes": [8]}
    weights = {"w": np.arange(size, dtype=np.float32), "obs_mean": np.full(2, float(step))}
    return EvaluateMessage((MemberPolicy("a-s1", step, card, weights), MemberPolicy("a-s2", step, card, weights)))


def plain(messages):
    return [
        (policy.member, policy.env_step, policy.card, {name: value.tolist() for name, value in policy.weights.items()})
        for each in messages
        for policy in each.policies
    ]


def test_they_are_read_as_they_were_written(tmp_path):
    written = [message(64), message(128)]
    unfinished.write(tmp_path / "u", written)
    assert plain(unfinished.read(tmp_path / "u")) == plain(written)


def test_together_they_may_be_larger_than_a_message(tmp_path, monkeypatch):
    one = len(encode(message(64, 10_000).to_dict()))
    monkeypatch.setattr("dressage_trainer.unfinished.encode", lambda said: encode(said, max_bytes=one + 100))
    unfinished.write(tmp_path / "u", [message(step, 10_000) for step in range(1, 6)])
    assert len(unfinished.read(tmp_path / "u")) == 5


def test_what_is_cut_short_or_says_something_else_is_refused(tmp_path):
    path = tmp_path / "u"
    unfinished.write(path, [message(64)])
    whole = path.read_bytes()
    for size in range(1, len(whole)):
        path.write_bytes(whole[:size])
        with pytest.raises(ProtocolError):
            unfinished.read(path)
    unfinished.write(path, [WarningMessage("R", "m")])
    with pytest.raises(ProtocolError, match="not an evaluation"):
        unfinished.read(path)


@pytest.mark.parametrize(
    "key", ["checkpoints/40.safetensors", "sessions/s/iterations/1/runs/train/checkpoints/40.safetensors"]
)
def test_the_key_is_beside_the_checkpoints(key):
    assert unfinished.key_beside(key) == key.replace(".safetensors", ".evaluations")
