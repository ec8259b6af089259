"""Evaluations: what an episode's returns are, and how a reward that fails on one is told of its member."""

import asyncio
from dataclasses import replace

import numpy as np
import pytest
from dressage.contracts import RewardError
from dressage.envs.trajectory import load_check_trajectories
from dressage.sandbox import capabilities
from dressage_trainer import evaluation
from dressage_trainer.evaluation import EvaluationSettings, EvaluatorPool, stopped_by
from dressage_trainer.messages import MemberPolicy

ENVIRONMENT = "Hopper-v5"
POLICY = MemberPolicy("main-3", 4000, {}, {})
PER_WAY = """
LATEX = "x"
TERMS = {"alive": "1", "cost": "effort per way"}

def reward(state, action, next_state, memory, np):
    moved = np.abs(next_state.x_position - state.x_position)
    alive = np.ones_like(moved)
    return {"alive": alive, "cost": -0.001 * np.square(action).sum(-1) / moved}
"""
BREAKING = PER_WAY.replace("/ moved", "/ (next_state.time - next_state.time)")


@pytest.fixture
def evaluated(tmp_path, monkeypatch):
    def evaluate(episodes, source=""):
        async def run():
            seeds = tuple(range(len(episodes)))
            settings = EvaluationSettings(environment=ENVIRONMENT, options={}, reward_source=source, seeds=seeds)
            async with EvaluatorPool(settings=settings, scratch=tmp_path, size=1) as pool:
                return await pool.evaluate(POLICY)

        monkeypatch.setattr(evaluation._Evaluator, "play", lambda *_: list(episodes))
        return asyncio.run(run())

    return evaluate


def episodes():
    groups = load_check_trajectories(ENVIRONMENT)
    return [*groups["random"], *groups["untrained"]]


def test_returns_are_added_up_in_float64(evaluated):
    episode = replace(episodes()[0], reward=np.array([2.0**24, 1.0, 1.0, 1.0], np.float32))
    (found,) = evaluated([episode])
    assert found.stock_return == found.own_return == episode.stock_return == 2.0**24 + 3.0


@pytest.mark.skipif(not capabilities().sufficient, reason="no sandbox here")
def test_episodes_of_unequal_length_are_scored_over_their_own_steps(evaluated):
    found = evaluated(episodes(), PER_WAY)
    alone = [evaluated([episode], PER_WAY)[0] for episode in episodes()]
    assert [episode.own_return for episode in found] == pytest.approx([episode.own_return for episode in alone])


@pytest.mark.skipif(not capabilities().sufficient, reason="no sandbox here")
def test_a_reward_that_fails_is_told_as_its_members_stop(evaluated):
    with pytest.raises(RewardError) as caught:
        evaluated(episodes(), BREAKING)
    told = stopped_by(caught.value, POLICY)
    assert (told.member, told.env_step, told.reason) == ("main-3", 4000, "REWARD_NOT_FINITE")
    assert "in the evaluation at environment step 4000" in told.message
    assert "the term cost is not finite" in told.message
    assert "Seen: -inf at step 0 of episode " in told.message
    other = RewardError("exception", "the reward raised ZeroDivisionError; make it work for every state.", line=7)
    assert stopped_by(other, POLICY).reason == "REWARD_ERROR"
