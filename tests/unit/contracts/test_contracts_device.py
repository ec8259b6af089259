"""Rewards on a device: what cannot be compiled is named with its line, and what can gives numpy's numbers and rankings."""

import re
import sys
from pathlib import Path

import jax
import numpy as np
import pytest
from dressage.contracts import check_reward_in_sandbox
from dressage.contracts.device import RULE, DeviceReward
from dressage.contracts.evidence import examine_reward
from dressage.contracts.failures import RewardError
from dressage.contracts.reward import BatchReward, load_reward
from dressage.envs.cards import load_card
from dressage.envs.state import State
from dressage.sandbox.capabilities import capabilities

from tests.unit.contracts.conftest import GOOD, REMEMBERING
from tests.unit.contracts.on_device import returns_on_both
from tests.unit.contracts.test_contracts_reward import BARE, CLASS, CLOSURE

EXAMPLES = Path(__file__).parents[3] / "examples" / "rewards"
BODY = """
LATEX = r"v"
TERMS = {"speed": "forward velocity, m/s"}
MEMORY = {"best": 0.0}

def reward(state, action, next_state, memory, np):
    speed = next_state.x_velocity
    %s
    return {"speed": speed}
"""
LINE = 8
UNTRACEABLE = {
    "if": ("if speed[0] > 0: speed = speed * 1.0", "np.where"),
    "and": ("speed = speed * (1.0 if np.all(np.isfinite(speed)) and len(speed) else 0.0)", "np.where"),
    "float": ("speed = speed + 0.0 * float(speed[0])", "array operations"),
    "condition as index": ("speed = speed + 0.0 * speed[speed > 1e9].sum()", "np.where"),
    "number as index": ("speed = speed + 0.0 * [1.0, 2.0][np.argmax(speed) % 2]", "np.where"),
    "max of arrays": ("speed = speed + 0.0 * max(speed[0], speed[-1])", "np.where"),
}


@pytest.mark.parametrize("name", UNTRACEABLE)
def test_code_that_looks_at_values_is_named_with_its_line(card, trajectories, name):
    statement, remedy = UNTRACEABLE[name]
    report = examine_reward(BODY % statement, card, trajectories[:2], budget={"vectorised": 1e4}, traceable=True)
    assert report.ok and report.traceable is False  # on the CPU pool it is right
    [obstacle] = report.obstacles
    assert (obstacle.rule, obstacle.line) == (RULE, LINE)
    assert remedy in obstacle.message and "CPU pool" in obstacle.message and "\n" not in obstacle.seen


@pytest.mark.parametrize("source", [CLASS, CLOSURE, BARE], ids=["class", "closure", "bare"])
def test_per_step_rewards_train_on_the_cpu_pool(card, trajectories, source):
    report = examine_reward(source, card, trajectories, budget={"per_step": 1e4}, traceable=True)
    assert report.ok and report.traceable is False
    [obstacle] = report.obstacles
    assert obstacle.rule == RULE and "CPU pool" in obstacle.message
    assert re.match(r"(class|def) ", source.splitlines()[obstacle.line - 1])
    with pytest.raises(RewardError, match=RULE):
        DeviceReward(load_reward(source, card), 3)


def test_without_jax_only_per_step_rewards_are_known(card, trajectories, monkeypatch):
    monkeypatch.setitem(sys.modules, "jax", None)
    report = examine_reward(CLASS, card, trajectories, budget={"per_step": 1e4}, traceable=True)
    assert report.ok and report.traceable is False and "per-step" in report.obstacles[0].message
    report = examine_reward(GOOD, card, trajectories, budget={"vectorised": 1e4}, traceable=True)
    assert report.ok and report.traceable is None and "JAX is not installed" in report.obstacles[0].message


@pytest.mark.parametrize("source", [GOOD, REMEMBERING], ids=["plain", "memory"])
def test_a_report_has_the_result_if_it_was_examined(card, trajectories, source):
    report = examine_reward(source, card, trajectories, budget={"vectorised": 1e4}, traceable=True)
    assert report.ok and report.traceable is True and not report.obstacles
    unexamined = examine_reward(source, card, trajectories, budget={"vectorised": 1e4})
    assert unexamined.traceable is None and not unexamined.obstacles


@pytest.mark.skipif(not capabilities().sufficient, reason="no sandbox here")
def test_the_sandbox_examines_a_reward_for_devices(card, trajectories, tmp_path):
    source = BODY % UNTRACEABLE["if"][0].replace("speed[0] > 0", "np.isfinite(speed).all()")
    report = check_reward_in_sandbox(
        source, card, trajectories[:2], scratch=tmp_path, budget={"vectorised": 1e4}, traceable=True
    )
    assert report.ok and report.traceable is False
    assert [(obstacle.rule, obstacle.line) for obstacle in report.obstacles] == [(RULE, LINE)]


@pytest.mark.parametrize(
    ("source", "environment"),
    [
        (GOOD, "HalfCheetah-v5"),
        (REMEMBERING, "HalfCheetah-v5"),
        ((EXAMPLES / "run_forward.py").read_text(), "HalfCheetah-v5"),
    ],
    ids=["plain", "memory", "example"],
)
def test_a_reward_ranks_stored_rollouts_alike_on_both_pools(source, environment):
    returns_on_both(environment, [source])


def test_memory_restarts_with_the_episode_as_on_the_cpu(card):
    module, rng = load_reward(REMEMBERING, card), np.random.default_rng(0)
    on_cpu, on_device = BatchReward(module, card, 4), DeviceReward(module, 4)
    with jax.enable_x64(True):
        memory = on_device.init(np.float64)
        for step in range(6):
            before, after = (_state(card, rng) for _ in range(2))
            action, done = rng.normal(size=(4, 6)), rng.random(4) < 0.4
            expected = on_cpu(State(before), action, State(after))
            memory, terms = jax.jit(lambda m, b, a, n: on_device(m, State(b), a, State(n)))(
                memory, before, action, after
            )
            np.testing.assert_allclose(terms, list(expected.terms.values()), rtol=1e-12, err_msg=f"step {step}")
            on_cpu.reset(done)
            memory = on_device.restart(memory, done)


def _state(card, rng):
    return {field.name: rng.normal(size=(4, *field.shape)) for field in load_card(card.id).fields}
