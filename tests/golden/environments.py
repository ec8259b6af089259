"""Presets, cards, the built-in author's rewards and judges, and steps of the small environments."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import numpy as np

from tests.golden.record import Files, compact, digest, lines

_COMPILED = ("CartPole-v1", "MountainCar-v0", "MountainCarContinuous-v0", "FrozenLake-v1")
_EPISODES = 3
_STEPS = 60


def record() -> Files:
    from dressage.envs import list_cards
    from dressage.training.device_rates import device_rates
    from dressage.training.measured import sessions
    from dressage.training.preset import device_preset, load_preset, preset_names

    cards = {card.id: digest(card.to_dict()) for card in list_cards()}
    presets: dict[str, Any] = {name: asdict(load_preset(name)) for name in sorted(preset_names())}
    presets["of devices"] = asdict(device_preset())
    measured = {
        "sessions": [digest(each) for each in sorted(compact(asdict(each)) for each in sessions())],
        "device rates": [digest(each) for each in sorted(compact(asdict(each)) for each in device_rates())],
    }
    return {
        "equal/cards.json": lines(cards),
        "equal/presets.json": lines(presets),
        "equal/measured.json": lines(measured),
    }


def record_author() -> Files:
    from dressage.api.internal.v1 import agent_service_pb2 as agent_pb
    from dressage.envs import list_cards
    from dressage.errors import DressageError
    from dressage_llm_agent.template import author

    texts: dict[str, Any] = {}
    for card in list_cards():
        for intent in (*card.example_intents, "run forward fast", "walk backward slowly", "stand still", "jump"):
            brief = agent_pb.Brief(intent=intent, environment=card.id)
            try:
                reward, judge = author.write_reward(brief), author.write_judge(brief)
                criteria = [[each.title, each.description, each.category] for each in author.elicit(brief).criteria]
            except DressageError as error:
                texts[f"{card.id}: {intent}"] = f"{error.reason} {digest(str(error))}"
                continue
            texts[f"{card.id}: {intent}"] = {
                "reward": digest([reward.source, reward.reasoning]),
                "judge": digest([judge.source, list(judge.null_controls), judge.reasoning]),
                "criteria": digest(criteria),
            }
    return {"equal/author.json": lines(texts)}


def record_episodes() -> Files:
    """Record seeded episodes of Gymnasium's classes and of the compiled batches."""
    from dressage.envs import EnvOptions, load_card
    from dressage.envs.small import OWN
    from dressage.episodes.lockstep import CompiledSimulation

    episodes: dict[str, Any] = {}
    for env_id in (*_COMPILED, *OWN):
        card = load_card(env_id)
        single = [_one_by_one(env_id, seed, small=env_id in OWN) for seed in range(_EPISODES)]
        batch = _together(CompiledSimulation(env_id, EnvOptions()), card, env_id)
        episodes[env_id] = {
            "gymnasium": [digest(rows) for rows in single],
            "batch": digest(batch),
            "rewards": [round(sum(row[1] for row in rows), 6) for rows in single],
        }
    return {"equal/episodes.json": lines(episodes)}


def _action(generator: np.random.Generator, card: Any) -> Any:
    if card.action_kind == "discrete":
        return int(generator.integers(card.num_actions))
    return generator.uniform(-1, 1, card.action_size).astype(np.float32)


def _rounded(observation: Any) -> list[float]:
    return [round(float(value), 6) for value in np.atleast_1d(np.asarray(observation)).ravel()]


def _one_by_one(env_id: str, seed: int, *, small: bool) -> list[Any]:
    import gymnasium
    from dressage.envs import load_card

    card, generator = load_card(env_id), np.random.default_rng(seed)
    env = gymnasium.make(f"dressage.envs.small:{env_id}" if small else env_id)
    observation, _ = env.reset(seed=seed)
    rows: list[Any] = [[_rounded(observation), 0.0, False]]
    while len(rows) <= _STEPS and not rows[-1][2]:
        observation, reward, terminated, truncated, _ = env.step(_action(generator, card))
        rows.append([_rounded(observation), round(float(reward), 6), bool(terminated or truncated)])
    env.close()
    return rows


def _together(simulation: Any, card: Any, env_id: str) -> list[Any]:
    """Step all episodes; a row that ended stays as it is."""
    generators = [np.random.default_rng(seed) for seed in range(_EPISODES)]
    result = [[_rounded(row) for row in simulation.reset(range(_EPISODES))]]
    going = np.arange(_EPISODES)
    while len(result) <= _STEPS and len(going):
        actions = np.stack([np.asarray(_action(generators[row], card)) for row in going])
        observations, rewards, ends, _ = simulation.step(going, actions)
        result.append(
            [[_rounded(o), round(float(r), 6), bool(e)] for o, r, e in zip(observations, rewards, ends, strict=True)]
        )
        going = going[~ends]
    simulation.close()
    return result
