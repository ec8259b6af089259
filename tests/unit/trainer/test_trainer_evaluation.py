"""Evaluations: what an episode's returns are, and what is reported of a member whose reward fails in one."""

import asyncio
import functools
from dataclasses import replace

import numpy as np
import pytest
from dressage.api.internal.v1 import run_service_pb2 as pb
from dressage.contracts import RewardError
from dressage.envs.trajectory import load_check_trajectories
from dressage.sandbox.capabilities import capabilities
from dressage_trainer.assignments.delivery import episode_seeds
from dressage_trainer.evaluation import evaluator_pool, rollouts
from dressage_trainer.evaluation.evaluator_pool import EvaluationSettings, EvaluatorPool, stopped_by
from dressage_trainer.lease.sandboxes import Sandboxes
from dressage_trainer.messages import MemberPolicy
from hypothesis import given, settings
from hypothesis import strategies as st

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


@functools.cache
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


NEUTRAL = """
LATEX = "1"
TERMS = {"alive": "1 for every step"}

def reward(state, action, next_state, memory, np):
    return {"alive": np.ones_like(next_state.x_position)}
"""
INFLATING = NEUTRAL.replace(
    "np.ones_like(next_state.x_position)", "np.where(next_state.x_position > BOUND, 1e9, -1e9) + next_state.time"
)


def made_up(order):
    """Episodes with the stock returns 1, 2, … in an order; each at a place of its own, by which a reward recognises it."""
    base = episodes()[0]
    length = len(base.reward)
    return [
        replace(
            base,
            seed=seed,
            reward=np.full(length, rank / length, np.float32),
            fields={**base.fields, "x_position": np.full_like(base.fields["x_position"], seed)},
        )
        for seed, rank in enumerate(order, start=1)
    ]


def judged(evaluated_episodes):
    message = rollouts.evaluation(evaluated_episodes, env_step=1, keys={label: label for label in rollouts.LABELS})
    return {rollout.label: rollout.seed for rollout in message.rollouts}


@pytest.mark.skipif(not capabilities().sufficient, reason="no sandbox here")
def test_a_reward_cannot_choose_the_episodes_that_are_judged(evaluated):
    played = made_up([7, 3, 11, 1, 9, 5, 2, 10, 4, 8, 6])
    fair = evaluated(played, NEUTRAL)
    expected = {"p10": 7, "median": 11, "p90": 8}  # the episodes with the stock returns 2, 6 and 10
    assert judged(fair) == expected
    for bound in (0, 3, 5, 8, 12):  # its own return is the largest for the episodes after a place, as the reward likes
        inflated = evaluated(played, INFLATING.replace("BOUND", str(bound)))
        assert [episode.stock_return for episode in inflated] == [episode.stock_return for episode in fair]
        proposed = [episode.proposed_return for episode in inflated]
        assert [value > 0 for value in proposed] == [episode.trajectory.seed > bound for episode in inflated]
        assert judged(inflated) == expected


@settings(max_examples=50, deadline=None, derandomize=True)
@given(st.lists(st.tuples(st.floats(-1e6, 1e6), st.floats(allow_nan=True)), min_size=1, max_size=40))
def test_the_judged_episodes_are_quantiles_of_the_stock_return(returns):
    trajectory = episodes()[0]
    stock = [stock for stock, _ in returns]
    played = [
        rollouts.Episode(replace(trajectory, seed=seed), stock_return, proposed)
        for seed, (stock_return, proposed) in enumerate(returns)
    ]
    for label, seed in judged(played).items():
        quantile = np.quantile(stock, rollouts.LABELS[label], method="nearest")
        assert stock[seed] == pytest.approx(quantile)
    stalled = RewardError("time_budget", "the code did not end in time; remove endless or long loops.", line=7)
    assert stopped_by(stalled, POLICY).reason == "REWARD_STALLED"


@given(members=st.integers(1, 6), final=st.integers(1, 30), few=st.integers(0, 40))
def test_checkpoints_of_members_have_different_episodes_of_the_last(members, final, few):
    task = pb.TrainAssignment(evaluation_seed=100, evaluation_episodes=final, checkpoint_episodes=few)
    for number in range(members):
        task.members.add(id=f"m{number}")
    ids = [member.id for member in task.members]
    assert all(episode_seeds(task, name, final=True) == list(range(100, 100 + final)) for name in ids)
    played = [episode_seeds(task, name, final=False) for name in ids]
    count = few or final
    assert all(len(seeds) == len(set(seeds)) == count for seeds in played)
    assert set().union(*played) <= set(range(100, 100 + max(final, count)))
    assert len(set().union(*played)) == min(
        members * count, max(final, count)
    )  # as many different ones as there can be
