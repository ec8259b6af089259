"""The sandboxed evaluator plays policies of every kind, on vectors and on discrete observations, as Gymnasium does."""

from __future__ import annotations

import asyncio

import gymnasium
import numpy as np
import pytest
from dressage.envs.adding import add_registered
from dressage.envs.cards import load_card
from dressage.policies import Policy, PolicyCard, kinds
from dressage_trainer.evaluation.evaluator_pool import EvaluationSettings, EvaluatorPool
from dressage_trainer.lease.sandboxes import Sandboxes
from dressage_trainer.messages import MemberPolicy

SEEDS = tuple(range(1_000_000, 1_000_006))


def member(name: str, environment: str) -> MemberPolicy:
    spec = kinds.PolicySpec.of(name, load_card(environment), hidden=(8,))
    kind = kinds.kind(name)
    card = kind.card(spec, environment=environment)
    return MemberPolicy(name, 0, card.to_dict(), kind.initial(spec, seed=5))


async def play(policies: list[MemberPolicy], environment: str, folder) -> list[list[float]]:
    settings = EvaluationSettings(environment=environment, options={}, reward_source="")
    folder.mkdir(exist_ok=True)
    sandboxes = Sandboxes(folder / "sandboxes")
    async with EvaluatorPool(settings=settings, sandboxes=sandboxes, scratch=folder, size=1) as pool:
        episodes = [await pool.evaluate(policy, SEEDS) for policy in policies]
    sandboxes.close()
    return [[episode.stock_return for episode in played] for played in episodes]


def stock_return(member: MemberPolicy, env, seed: int) -> float:
    """One episode of plain Gymnasium, with the policy on the environment's own observations."""
    policy = Policy(weights=member.weights, card=PolicyCard.from_dict(member.card))
    observation, _ = env.reset(seed=seed)
    total, done = 0.0, False
    while not done:
        action = policy.act(observation)
        observation, reward, terminated, truncated, _ = env.step(action.item() if action.ndim == 0 else action)
        total, done = total + float(reward), terminated or truncated
    return total


@pytest.mark.parametrize("environment", ["CartPole-v1", "InvertedPendulum-v5"])
def test_the_evaluator_plays_networks_of_each_kind(environment, tmp_path):
    policies = [member(name, environment) for name in ("linear", "mlp", "random_features")]
    env = gymnasium.make(environment)
    for policy, returns in zip(policies, asyncio.run(play(policies, environment, tmp_path)), strict=True):
        assert returns == pytest.approx([stock_return(policy, env, seed) for seed in SEEDS])
        assert len(set(returns)) > 1, "the seeds give different episodes"


def test_the_evaluator_plays_a_table_on_frozen_lake(tmp_path, monkeypatch):
    monkeypatch.setenv("DRESSAGE_ENVIRONMENTS", str(tmp_path / "environments"))
    environment = "gymnasium:FrozenLake-v1"
    add_registered(environment)
    policy = member("table", environment)
    # The optimal policy of the slippery 4x4 lake, so that some episodes succeed.
    policy.weights["table"] = np.array([0, 3, 3, 3, 0, 0, 0, 0, 3, 1, 0, 0, 0, 2, 1, 0])
    (returns,) = asyncio.run(play([policy], environment, tmp_path / "scratch"))
    env = gymnasium.make("FrozenLake-v1")
    assert returns == [stock_return(policy, env, seed) for seed in SEEDS]
    assert set(returns) == {0.0, 1.0}
