"""Both backends warn of a simulation that diverges: once, then at 10, 100, … steps, and not again after a resume."""

from __future__ import annotations

import pytest

pytest.importorskip("jax")
pytest.importorskip("mujoco")

from dressage.contracts.reward import load_reward
from dressage.envs import EnvOptions, load_card, make_batch
from dressage_trainer.backends.group import MemberSetup, divergence_warnings
from dressage_trainer.checkpoints import Snapshot
from dressage_trainer.messages import MemberTask, TrainSpec

ENVIRONMENT = "InvertedPendulum-v5"
REWARD = '''
LATEX = "1"
TERMS = {"up": "stay up"}

def reward(state, action, next_state, memory, np):
    """One a step."""
    return {"up": 0.0 * next_state.time + 1.0}
'''
SMALL = {"num_envs": 2, "num_steps": 3, "minibatch_size": 6, "epochs": 1, "hidden_sizes": [4]}


def warned(counts):
    """The counts at which there is a warning."""
    return [now for before, now in zip([0, *counts], counts, strict=False) if divergence_warnings(before, now)]


@pytest.mark.parametrize(
    ("counts", "expected"),
    [
        (range(1, 1_500), [1, 10, 100, 1_000]),
        ([0, 0, 0], []),
        ([0, 37, 99, 100, 101, 5_000], [37, 100, 5_000]),
        ([9, 9, 9, 10, 10], [9, 10]),
    ],
)
def test_a_warning_comes_at_the_first_and_then_at_each_power_of_ten(counts, expected):
    assert warned(list(counts)) == expected


def backend(name):
    if name == "sb3":
        pytest.importorskip("torch")
        pytest.importorskip("stable_baselines3")
    return __import__(
        "dressage_trainer.backends.sb3.groups" if name == "sb3" else "dressage_trainer.backends.stacked", fromlist=["_"]
    )


def restless(*arguments, **values):
    """A batch that diverges once in every step, according to its counter."""
    batch = make_batch(*arguments, **values)
    step = batch.step

    def counting(actions):
        batch.divergences += 1
        return step(actions)

    batch.step = counting
    return batch


@pytest.mark.parametrize("name", ["jax", "sb3"])
def test_each_backend_warns_and_a_resumed_run_continues_the_count(name, tmp_path):
    card = load_card(ENVIRONMENT)
    spec = TrainSpec(environment=ENVIRONMENT, reward_source=REWARD, members=(MemberTask("a", SMALL, 1),), backend=name)

    def group(resumed=None):
        setup = MemberSetup(spec, card, EnvOptions(), load_reward(REWARD, card), tmp_path)
        (built,) = backend(name).build_groups(setup, make_batch=restless, resumed=resumed)
        return built

    def warnings(training, updates):
        reported = [(index, w) for index in range(1, updates + 1) for w in training.advance(began=0.0).warnings]
        return [(index, warn.message) for index, warn in reported if warn.reason == "SIMULATION_DIVERGED"]

    first = group()
    # Three steps an update: 3, 6, 9, 12, ... divergences.
    assert [(index, text.split()[4]) for index, text in warnings(first, 5)] == [(1, "3"), (4, "12")]
    arrays = {f"group0/{key}": value for key, value in first.snapshot().items()}
    resumed = group(Snapshot(first.updates, first.steps, {"groups": [first.facts()]}, arrays))
    # 18, 21, ..., and 102 at the 34th update of all.
    assert [(index, text.split()[4]) for index, text in warnings(resumed, 30)] == [(29, "102")]
    for one in (first, resumed):
        one.close()
