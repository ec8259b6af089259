"""Policies that were trained for a moment, for tests that want a robot in the states that training visits."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path

import numpy as np
from dressage.api.internal.v1.agent_service_pb2 import Brief
from dressage.contracts.reward import load_reward
from dressage.envs import EnvOptions, load_card, make_batch
from dressage.errors import InvalidArgument
from dressage.policies import Policy, PolicyCard
from dressage_llm_agent.template.author import write_reward
from dressage_trainer.backends.group import MemberSetup
from dressage_trainer.backends.stacked import build_groups
from dressage_trainer.messages import MemberTask, TrainSpec


def reward_for(env_id: str) -> str:
    """Source of a reward: the template author's for the first of the card's examples that it supports."""
    for intent in load_card(env_id).example_intents:
        with suppress(InvalidArgument):
            return write_reward(Brief(intent=intent, environment=env_id)).source
    raise AssertionError(f"the template author supports no example of {env_id}")


@cache
def trained_policy(env_id: str, steps: int = 40_000) -> Callable[[np.ndarray], np.ndarray]:
    """The deterministic policy after that many environment steps, with the environment's preset."""
    card, source = load_card(env_id), reward_for(env_id)
    member = MemberTask("trained", {}, 0)
    spec = TrainSpec(environment=env_id, reward_source=source, members=(member,), threads=2, steps_per_member=steps)
    with tempfile.TemporaryDirectory() as folder:
        setup = MemberSetup(
            spec=spec,
            card=card,
            options=EnvOptions(),
            module=load_reward(source, card),
            root=Path(folder),
        )
        (group,) = build_groups(setup, make_batch=make_batch)
        while group.steps < steps:
            group.advance(began=time.monotonic())
        (policy,) = group.policies()
        group.close()
    return Policy(weights=policy.weights, card=PolicyCard.from_dict(policy.card)).act
