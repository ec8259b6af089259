"""On every environment a run that resumes from a checkpoint's file ends with the bits of one that was never interrupted."""

from __future__ import annotations

import json

import numpy as np
import pytest

pytest.importorskip("jax")
pytest.importorskip("mujoco")

from dressage.envs import REWARD_ENVIRONMENT_IDS
from dressage_trainer import checkpoints
from dressage_trainer.messages import MemberTask, TrainSpec

from tests.unit.trainer.in_process import run

# The memory spans the whole episode, and not all rows end an episode just before the checkpoint.
REWARD = '''
LATEX = "1"
TERMS = {"place": "of the observation", "late": "depends on the memory"}
MEMORY = {"steps": 0.0, "peak": -1000.0}

def reward(state, action, next_state, memory, np):
    """Grows with the episode, and with each new peak of the observation."""
    memory.steps = memory.steps + 1.0
    size = next_state.observation.sum(-1) + READ
    gain = np.maximum(size - memory.peak, 0.0)
    memory.peak = np.maximum(memory.peak, size)
    return {"place": next_state.time - 0.1 * np.tanh(size), "late": 0.01 * memory.steps + np.tanh(gain)}
'''
SMALL = {"num_envs": 4, "num_steps": 24, "minibatch_size": 48, "epochs": 2, "hidden_sizes": [8]}
MEMBERS = (MemberTask("a", SMALL, 1), MemberTask("b", {**SMALL, "discount": 0.9, "learning_rate": 2e-3}, 2))
UPDATE = SMALL["num_envs"] * SMALL["num_steps"]
# Cut within an update, before and after the checkpoint.
OPTIONS = {"max_episode_steps": 40}
OBSERVES_CONTACTS = {"Ant-v5", "Humanoid-v5", "HumanoidStandup-v5"}
# Reading a contact force, the reward has the other engine simulate where observations hold none.
CASES = [
    *((environment, "0.0") for environment in REWARD_ENVIRONMENT_IDS),
    ("Hopper-v5", "0.001 * next_state.contact_foot"),
]


def train(folder, environment, read, updates, *, begun=0, **values):
    """Train, and return the checkpoint after the last update.

    :param begun: updates done by the attempt before.
    """
    request = TrainSpec(
        environment=environment,
        reward_source=REWARD.replace("READ", read),
        members=MEMBERS,
        steps_per_member=updates * UPDATE,
        threads=2,
        options=OPTIONS,
        checkpoint_seconds=0,
        **values,
    )
    messages = run(folder, request)
    assert messages[-1].type == "done", messages[-1]
    # A restart would end with the same bits, too.
    assert messages[-1].env_steps_total == (updates - begun) * UPDATE * len(MEMBERS)
    snapshot = checkpoints.read(folder / checkpoints.path_of(updates))
    # The delivered policies are those in the file.
    for index, policy in enumerate(messages[-1].policies):
        for name, value in snapshot.part("group0/state/weights/").items():
            stored = policy.weights[name]
            seen = value.shape[-1] if name in ("pi.0.weight", "vf.0.weight") else stored.shape[-1]
            np.testing.assert_array_equal(value[index], stored[..., :seen])
            assert not stored[..., seen:].any()
    return snapshot


def rows_of(array):
    """Return the metrics without those that depend on a clock."""
    rows = [json.loads(line) for line in array.tobytes().splitlines()]
    return [{name: value for name, value in row.items() if "second" not in name} for row in rows]


@pytest.mark.parametrize(("environment", "read"), CASES)
def test_a_resumed_training_ends_with_the_same_bits(tmp_path, monkeypatch, environment, read):
    monkeypatch.chdir(tmp_path)
    whole = train(tmp_path / "whole", environment, read, 4)
    between = train(tmp_path / "part", environment, read, 2)
    rest = train(tmp_path / "part", environment, read, 4, begun=2, resume=checkpoints.path_of(2))

    assert rest.facts == whole.facts and rest.arrays.keys() == whole.arrays.keys()
    metrics = [name for name in whole.arrays if name.startswith("group0/metrics/")]
    for name in sorted(whole.arrays.keys() - set(metrics)):
        np.testing.assert_array_equal(rest.arrays[name], whole.arrays[name], err_msg=name)
    for name in metrics:
        assert rows_of(rest.arrays[name]) == rows_of(whole.arrays[name])

    # The parts that the test is about are not trivial: memory, both normalisers, Adam's moments, contact forces.
    part = between.part("group0/state/")
    assert part["collector/reward/memory/steps"].max() > 1
    for normaliser in ("observations", "returns"):
        assert (part[f"collector/{normaliser}/count"] >= 2 * UPDATE).all()
    assert all(array.any() for name, array in part.items() if name.startswith(("adam/first/", "adam/second/")))
    forces = part.get("collector/environment/raw/cfrc_ext")
    assert (forces is not None and forces.any()) == (environment in OBSERVES_CONTACTS or "contact" in read)
    changed = [name for name in part if not np.array_equal(part[name], whole.part("group0/state/")[name])]
    assert {"adam/step", "collector/observations/mean", "collector/returns/var"} < set(changed)
