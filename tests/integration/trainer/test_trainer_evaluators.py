"""Evaluator processes: what they play, and that a starved one in the background comes to the foreground."""

import asyncio
import os

import numpy as np
from dressage.policies import PolicyCard
from dressage_trainer import evaluation
from dressage_trainer.evaluation import EvaluationSettings, EvaluatorPool
from dressage_trainer.messages import MemberPolicy
from dressage_trainer.ppo.network import initial_weights

ENVIRONMENT = "InvertedPendulum-v5"
SEEDS = (1_000_000, 1_000_001)


def untrained() -> MemberPolicy:
    weights = initial_weights(
        observation_size=4, action_size=1, hidden_sizes=(8,), rng=np.random.default_rng(0), dtype=np.float32
    )
    card = PolicyCard(
        environment=ENVIRONMENT, observation_size=4, action_low=(-3.0,), action_high=(3.0,), hidden_sizes=(8,),
        normalize_observation=True, epsilon=1e-8, clip=10.0, environment_options={}, statistics={}, provenance={},
    )  # fmt: skip
    return MemberPolicy("m", 0, card.to_dict(), {**weights, "obs_mean": np.zeros(4), "obs_var": np.ones(4)})


async def play(tmp_path, *, background):
    """Returns of the stock reward, and the nice values of the processes that played."""
    settings = EvaluationSettings(environment=ENVIRONMENT, options={}, reward_source="", seeds=SEEDS)
    nice = []
    start = evaluation.SandboxProcess.start

    def noted(*args, **kwargs):
        process = start(*args, **kwargs)
        nice.append(process.pid)
        return process

    evaluation.SandboxProcess.start = noted
    try:
        async with EvaluatorPool(settings=settings, scratch=tmp_path, size=1, background=background) as pool:
            episodes = await pool.evaluate(untrained())
            priority = os.getpriority(os.PRIO_PROCESS, nice[-1])
    finally:
        evaluation.SandboxProcess.start = start
    return [episode.stock_return for episode in episodes], len(nice), priority


def test_a_starved_background_evaluator_comes_to_the_foreground(tmp_path, monkeypatch):
    own = os.getpriority(os.PRIO_PROCESS, 0)
    normal, processes, priority = asyncio.run(play(tmp_path / "a", background=False))
    assert len(normal) == len(SEEDS) and (processes, priority) == (1, own)
    monkeypatch.setattr(evaluation, "_BACKGROUND_SECONDS", 0.01)
    starved, processes, priority = asyncio.run(play(tmp_path / "b", background=True))
    assert (processes, priority) == (2, own)
    assert starved == normal
