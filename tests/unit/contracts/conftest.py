import numpy as np
import pytest
from dressage.envs.cards import load_card
from dressage.envs.state import State
from dressage.envs.trajectory import load_check_trajectories

GOOD = """
LATEX = r"v_x - 0.1\\lVert a\\rVert^2"
TERMS = {"speed": "forward velocity, m/s", "effort": "squared torque"}

def reward(state, action, next_state, memory, np):
    return {"speed": next_state.x_velocity, "effort": -0.1 * np.square(action).sum(-1)}
"""

REMEMBERING = """
LATEX = r"\\max h"
TERMS = {"record": "gain over the best distance of the episode", "steps": "steps taken"}
MEMORY = {"best": 0.25, "steps": 0.0}

def reward(state, action, next_state, memory, np):
    before = memory.best
    memory.best = np.maximum(before, next_state.x_position)
    memory.steps += 1
    return {"record": memory.best - before, "steps": memory.steps * 1.0}
"""

JUDGE = """
def judge(trajectory, np):
    speed = float(np.mean(trajectory.x_velocity))
    score = float(np.clip(speed / 4.0, 0.0, 1.0))
    return {"score": score, "criteria": {"speed": score}, "evidence": {"mean speed, m/s": speed}}
"""


@pytest.fixture(scope="session")
def card():
    return load_card("HalfCheetah-v5")


@pytest.fixture(scope="session")
def groups():
    return load_check_trajectories("HalfCheetah-v5")


@pytest.fixture(scope="session")
def trajectories(groups):
    return [trajectory for group in groups.values() for trajectory in group]


@pytest.fixture(scope="session")
def random_state(card):
    def make(num_envs, seed=0):
        rng = np.random.default_rng(seed)
        return State({field.name: rng.normal(size=(num_envs, *field.shape)) for field in card.fields})

    return make
