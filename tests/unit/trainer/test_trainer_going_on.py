"""A learner that waits until it may continue, and one that continues from a policy."""

from __future__ import annotations

import asyncio
import dataclasses

import numpy as np
import pytest

pytest.importorskip("jax")
pytest.importorskip("mujoco")

from dressage.api.internal.v1 import run_service_pb2 as pb
from dressage_trainer import checkpoints, learner
from dressage_trainer.lease.work import WorkStream
from dressage_trainer.messages import ExtendMessage, MemberStart, MemberTask, TrainSpec

from tests.unit.trainer.in_process import Supervisor, run

REWARD = '''
LATEX = "1"
TERMS = {"up": "stay up"}
MEMORY = {"steps": 0.0}

def reward(state, action, next_state, memory, np):
    """Grows with the episode."""
    memory.steps = memory.steps + 1.0
    return {"up": 1.0 + 0.01 * memory.steps}
'''
SMALL = {"num_envs": 4, "num_steps": 32, "minibatch_size": 32, "epochs": 2, "hidden_sizes": [16, 16]}
UPDATE = 128
EXPECTED, MOST = 4 * UPDATE, 10 * UPDATE


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def spec(*, member=None, **values):
    members = (member or MemberTask("a", SMALL, 1), MemberTask("b", {**SMALL, "learning_rate": 1e-3}, 2))
    base = {"steps_per_member": EXPECTED, "max_steps": MOST, "evaluations": 2, "checkpoint_seconds": 1e9}
    return TrainSpec(environment="InvertedPendulum-v5", reward_source=REWARD, members=members, **{**base, **values})


def extended(folder, request, extensions):
    """All messages of a learner that gets an extension each time it waits; without a word the connection is closed."""
    supervisor, seen, left = Supervisor(folder, request), [], list(extensions)
    for message in supervisor.messages():
        seen.append(message)
        if message.type == "checkpoint":  # what it stores before it waits
            if not left:
                supervisor.channel.close()
                break
            supervisor.channel.send(ExtendMessage(left.pop(0)).to_dict())
    return seen


def weights_of(messages):
    return [{name: np.array(value) for name, value in policy.weights.items()} for policy in messages[-1].policies]


def assert_same(first, second):
    for a, b in zip(first, second, strict=True):
        for name, value in a.items():
            np.testing.assert_array_equal(value, b[name], err_msg=name)


def marks(messages):
    return [message.policies[0].env_step // UPDATE for message in messages if message.type == "evaluate"]


def test_a_training_that_waited_ends_with_the_same_bits(tmp_path):
    straight = run(tmp_path / "straight", spec())
    assert marks(straight) == [2, 4, 6, 8] and straight[-1].type == "done"
    # The length changes nothing before its end: no schedule depends on it.
    fixed = run(tmp_path / "fixed", spec(max_steps=0))
    (middle,) = [m for m in straight if m.type == "evaluate" and m.policies[0].env_step == EXPECTED]
    assert_same(weights_of(fixed), weights_of([middle]))
    waiting = extended(tmp_path / "waiting", spec(granted_steps=EXPECTED), [8 * UPDATE, MOST])
    assert marks(waiting) == [2, 4, 6, 8] and waiting[-1].type == "done"
    assert_same(weights_of(straight), weights_of(waiting))
    paused = [message for message in waiting if message.type == "progress" and message.activity == "waiting"]
    assert [message.members[0].env_step // UPDATE for message in paused] == [4, 8]
    # Killed while it waits, it continues from what it stored, with the same curve.
    checkpoint = next(message for message in extended(tmp_path / "killed", spec(granted_steps=EXPECTED), [])[::-1])
    assert checkpoint.type == "checkpoint" and checkpoint.env_step == EXPECTED
    (tmp_path / "again").mkdir()
    name = checkpoints.path_of(checkpoint.update)
    (tmp_path / "again" / "old").write_bytes((tmp_path / "killed" / name).read_bytes())
    resumed = run(tmp_path / "again", spec(granted_steps=MOST, resume="old"))
    assert marks(resumed) == [6, 8]
    assert_same(weights_of(straight), weights_of(resumed))
    rows = [(tmp_path / f / "members/a/metrics.jsonl").read_text().count("\n") for f in ("straight", "again")]
    assert rows == [10, 10]


def test_a_learner_without_a_decision_does_not_wait_for_ever(tmp_path, monkeypatch):
    monkeypatch.setattr(learner, "_WAIT_SECONDS", 0.2)
    last = run(tmp_path / "a", spec(granted_steps=EXPECTED))[-1]
    assert last.type == "failed" and last.reason == "NO_DECISION" and not last.generated_code


def start_of(messages, *, keeps_value):
    policy = messages[-1].policies[0]
    return MemberStart(
        weights=dict(policy.weights),
        statistics=policy.card["normalization"]["statistics"],
        keeps_value=keeps_value,
        provenance={"policy": "sessions/s/iterations/1/assignments/train/members/a/policy"},
    )


@pytest.mark.parametrize("keeps_value", [False, True])
def test_a_member_continues_from_a_policy_and_its_company_does_not(tmp_path, keeps_value):
    still = {**SMALL, "learning_rate": 1e-30}  # what it starts with is what it ends with
    once = {"steps_per_member": UPDATE, "max_steps": 0, "evaluations": 1}
    earlier = run(tmp_path / "earlier", spec())
    start = start_of(earlier, keeps_value=keeps_value)
    fresh = run(tmp_path / "fresh", spec(member=MemberTask("a", still, 1), **once))
    warm = run(tmp_path / "warm", spec(member=MemberTask("a", still, 1, start), **once))
    (begun, other), (random, company) = weights_of(warm), weights_of(fresh)
    assert_same([other], [company])
    for name in begun:
        if name in ("obs_mean", "obs_var"):
            assert not np.allclose(begun[name], random[name])
            continue
        of_value = name.startswith(("vf.", "value."))
        expected = random if of_value and not keeps_value else start.weights
        np.testing.assert_allclose(begun[name], expected[name], err_msg=name, atol=1e-6)
    card = warm[-1].policies[0].card
    assert card["provenance"]["continues"] == start.provenance
    assert "continues" not in warm[-1].policies[1].card["provenance"]
    # The statistics continue counting from the policy's.
    statistics = card["normalization"]["statistics"]
    samples = statistics["obs_count"] - start.statistics["obs_count"]
    assert samples == pytest.approx(UPDATE + SMALL["num_envs"])
    counted = statistics["return_count"] - (start.statistics["return_count"] if keeps_value else 0)
    assert counted == pytest.approx(UPDATE, abs=1)


def test_a_policy_of_another_network_is_refused(tmp_path):
    start = start_of(run(tmp_path / "earlier", spec()), keeps_value=False)
    larger = MemberTask("a", {**SMALL, "hidden_sizes": [32, 16]}, 1, start)
    last = run(tmp_path / "a", spec(member=larger))[-1]
    assert last.type == "failed" and "pi.0" in last.message
    sb3 = dataclasses.replace(spec(member=MemberTask("a", SMALL, 1, start)), backend="sb3")
    last = run(tmp_path / "b", sb3)[-1]
    assert last.type == "failed" and "start" in last.message


async def test_an_assignment_that_is_sent_again_raises_the_grant():
    stream = WorkStream(address="127.0.0.1:1", hello=pb.Hello(), redial_seconds=1.0)

    def sent(steps):
        train = pb.TrainAssignment(granted_steps=steps)
        stream._receive(pb.WorkResponse(assignment=pb.Assignment(id=1, train=train)))

    sent(100)
    assert (await stream.assignments.get()).train.granted_steps == 100
    grant = stream.step_grant(1)
    waiting = asyncio.create_task(grant.beyond(100))
    sent(100)  # once more, after a redial
    await asyncio.sleep(0)
    assert not waiting.done() and stream.assignments.empty()
    sent(300)
    assert await asyncio.wait_for(waiting, 5) == 300 and stream.assignments.empty()
    sent(200)
    assert grant.steps == 300
