"""Episodes of unequal length as a batch: a reward gets only their transitions and returns the same values as alone."""

import numpy as np
import pytest
from dressage.contracts import RewardError
from dressage.contracts.reward import load_reward
from dressage.contracts.segments import whole_episodes
from dressage.contracts.transitions import evaluate
from dressage.envs.cards import load_card
from dressage.envs.trajectory import load_check_trajectories

VECTORISED = """
LATEX = "x"
TERMS = {"cost": "effort per way", "record": "gain over the best distance"}
MEMORY = {"best": 0.0}

def reward(state, action, next_state, memory, np):
    moved = np.abs(next_state.x_position - state.x_position)
    before = memory.best
    memory.best = np.maximum(before, next_state.x_position)
    return {"cost": -0.001 * np.square(action).sum(-1) / moved, "record": memory.best - before}
"""

PER_STEP = """
class Slow(RewardFunction):
    def __init__(self):
        self.steps = 0

    def compute(self, obs, action, next_obs, info):
        self.steps += 1
        terms = {"cost": -0.001 / float(abs(next_obs - obs).sum()), "steps": float(self.steps)}
        return sum(terms.values()), terms

    @property
    def latex(self):
        return "x"

    @property
    def terms(self):
        return {"cost": "a cost", "steps": "steps so far"}
"""

BREAKS = """
LATEX = "x"
TERMS = {"speed": "m/s"}

def reward(state, action, next_state, memory, np):
    return {"speed": np.log(TIME - next_state.time)}
"""


@pytest.fixture(scope="module")
def hopper():
    return load_card("Hopper-v5")


@pytest.fixture(scope="module")
def episodes():
    groups = load_check_trajectories("Hopper-v5")
    recorded = [*groups["random"], *groups["untrained"]]
    assert len({episode.num_steps for episode in recorded}) == len(recorded)
    return recorded


def test_no_reward_sees_more_than_the_episodes(hopper, episodes):
    for source in (VECTORISED, PER_STEP):
        module = load_reward(source, hopper)
        together = evaluate(module, hopper, whole_episodes(episodes, hopper))
        assert together.shape == (max(e.num_steps for e in episodes), 2, len(episodes))
        for row, episode in enumerate(episodes):
            alone = evaluate(module, hopper, whole_episodes([episode], hopper))[:, :, 0]
            np.testing.assert_allclose(together[: episode.num_steps, :, row], alone, rtol=1e-12)
            assert not together[episode.num_steps :, :, row].any()


def test_a_fault_names_the_row_and_the_step(hopper, episodes):
    """The shortest episode stands first, so that the longest, in which it happens, is not where it was evaluated."""
    ordered = sorted(episodes, key=lambda episode: episode.num_steps)
    step = ordered[-2].num_steps
    assert ordered[-1].num_steps > step
    source = BREAKS.replace("TIME", repr(float(ordered[-1].time[step + 1]) - 1e-4))
    with np.errstate(all="ignore"), pytest.raises(RewardError) as caught:
        evaluate(load_reward(source, hopper), hopper, whole_episodes(ordered, hopper))
    assert (caught.value.rule, caught.value.term, caught.value.row) == ("finite", "speed", len(ordered) - 1)
    assert caught.value.seen == f"nan at step {step}"


def test_a_per_step_fault_names_the_row(hopper, episodes):
    ordered = sorted(episodes, key=lambda episode: episode.num_steps)
    step = ordered[-2].num_steps
    source = PER_STEP.replace('"steps": float(self.steps)', f'"steps": 1.0 / (self.steps - {step + 1})')
    with pytest.raises(RewardError) as caught:
        evaluate(load_reward(source, hopper), hopper, whole_episodes(ordered, hopper))
    assert (caught.value.rule, caught.value.row) == ("exception", len(ordered) - 1)
    assert caught.value.seen.startswith("ZeroDivisionError") and caught.value.seen.endswith(f"at step {step}")
