"""Evaluations: what an episode's returns are, and what is reported of a member whose reward fails in one."""

import asyncio
from dataclasses import replace

import numpy as np
import pytest
from dressage.contracts import RewardError
from dressage.envs.trajectory import load_check_trajectories
from dressage.sandbox.capabilities import capabilities
from dressage_trainer.evaluation import evaluator_pool
from dressage_trainer.evaluation.evaluator_pool import EvaluationSettings, EvaluatorPool, stopped_by
from dressage_trainer.lease.sandboxes import Sandboxes
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
    def evaluate(episodes, source="", size=1):
        async def run():
            settings = EvaluationSettings(environment=ENVIRONMENT, options={}, reward_source=source)
            sandboxes = Sandboxes(tmp_path / "sandboxes")
            async with EvaluatorPool(settings=settings, sandboxes=sandboxes, scratch=tmp_path, size=size) as pool:
                return await pool.evaluate(POLICY, range(len(episodes)))

        def play(_self, _policy, seeds):
            requests.append(tuple(seeds))
            return [episodes[seed] for seed in seeds]

        requests = []
        monkeypatch.setattr(evaluator_pool._Evaluator, "play", play)
        results = asyncio.run(run())
        evaluate.requests = sorted(requests)
        return results

    return evaluate


def episodes():
    groups = load_check_trajectories(ENVIRONMENT)
    return [*groups["random"], *groups["untrained"]]


def test_returns_are_added_up_in_float64(evaluated):
    episode = replace(episodes()[0], reward=np.array([2.0**24, 1.0, 1.0, 1.0], np.float32))
    (result,) = evaluated([episode])
    assert result.stock_return == result.proposed_return == episode.stock_return == 2.0**24 + 3.0


@pytest.mark.parametrize(("size", "sizes"), [(1, [5]), (2, [2, 3]), (3, [1, 2, 2]), (9, [1, 1, 1, 1, 1])])
def test_seeds_are_split_over_all_evaluators_and_put_together_in_order(evaluated, size, sizes):
    played = [replace(episodes()[0], seed=seed) for seed in range(5)]
    results = evaluated(played, size=size)
    assert [episode.trajectory.seed for episode in results] == list(range(5))
    assert [seed for part in evaluated.requests for seed in part] == list(range(5))
    assert sorted(map(len, evaluated.requests)) == sizes


@pytest.mark.skipif(not capabilities().sufficient, reason="no sandbox here")
def test_episodes_of_unequal_length_are_scored_over_their_own_steps(evaluated):
    results = evaluated(episodes(), PER_WAY)
    alone = [evaluated([episode], PER_WAY)[0] for episode in episodes()]
    assert [episode.proposed_return for episode in results] == pytest.approx(
        [episode.proposed_return for episode in alone]
    )


@pytest.mark.skipif(not capabilities().sufficient, reason="no sandbox here")
def test_a_reward_that_fails_is_told_as_its_members_stop(evaluated):
    with pytest.raises(RewardError) as caught:
        evaluated(episodes(), BREAKING)
    stop = stopped_by(caught.value, POLICY)
    assert (stop.member, stop.env_step, stop.reason) == ("main-3", 4000, "REWARD_NOT_FINITE")
    assert "in the evaluation at environment step 4000" in stop.message
    assert "the term cost is not finite" in stop.message
    assert "Seen: -inf at step 0 of episode " in stop.message
    other = RewardError("exception", "the reward raised ZeroDivisionError; make it work for every state.", line=7)
    assert stopped_by(other, POLICY).reason == "REWARD_ERROR"
