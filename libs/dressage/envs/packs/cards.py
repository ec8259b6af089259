"""The cards of the packs' environments. Their numbers are read off the live environment, in a process of the pack."""

from __future__ import annotations

import importlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from dressage.envs.cards import ActionComponent, EnvironmentCard, ObservationComponent, load_card
from dressage.envs.catalogue import catalogue
from dressage.envs.generate import write_check_episodes
from dressage.envs.packs import simulators
from dressage.envs.packs.registry import PACKS
from dressage.envs.packs.words import task_words
from dressage.envs.vector import Adapter, bound_fields

_SECONDS = 600.0
_EPISODES = 5


def describe(channel: Any) -> None:
    """Sandbox target in a process of the pack: build cards, or write check episodes into a folder, as asked for."""
    while env_id := str((request := channel.recv(timeout=_SECONDS))["environment"]):
        if request["folder"]:
            write_check_episodes(load_card(env_id), Path(request["folder"]))
            channel.send({"card": {}})
        else:
            channel.send({"card": build_card(env_id).to_dict()})


def build_card(env_id: str) -> EnvironmentCard:
    """Return the card of a live environment, with its measured scales. In a process of the pack."""
    env = simulators.make(env_id)
    entry = catalogue()[env_id]
    pack = PACKS[entry.pack]
    module = importlib.import_module(entry.module)
    words = task_words(module.TASK, env.unwrapped.facts) if pack.batched else module.WORDS[env_id]
    adapter = Adapter(env, env_id)
    steps = _time_limit(env)
    discrete = adapter.num_actions > 0
    if len(words.observation) != adapter.size or len(words.action) != (1 if discrete else len(adapter.low)):
        raise SystemExit(f"{env_id}: {adapter.size} observations, {len(adapter.low)} action components")
    bounds = [(0.0, adapter.num_actions - 1.0)] if discrete else list(zip(adapter.low, adapter.high, strict=True))
    card = EnvironmentCard(
        id=env_id,
        title=words.title,
        description=words.description.replace("{map}", _map(env)),
        fields=(),
        observation_components=tuple(ObservationComponent(*entry) for entry in words.observation),
        action=tuple(
            ActionComponent(name, float(low), float(high), unit, meaning)
            for (name, unit, meaning), (low, high) in zip(words.action, bounds, strict=True)
        ),
        action_kind="discrete" if discrete else "box",
        num_actions=adapter.num_actions,
        observation_size=adapter.size,
        time_step=words.time_step,
        max_episode_steps=steps,
        can_terminate="never" not in words.termination,
        termination=words.termination,
        stock_reward=words.stock_reward,
        example_intents=words.intents,
        options={"max_episode_steps": steps},
        methods=entry.methods,
        target=words.target,
        pack=pack.name,
    )
    simulated = tuple(env.unwrapped.facts.fields) if pack.batched else ()
    card = replace(card, fields=(*(entry.field for entry in bound_fields(card)), *simulated))
    return replace(card, scales=_scales(env, adapter))


def _time_limit(env: Any) -> int:
    while not hasattr(env, "_max_episode_steps"):
        env = env.env
    return int(env._max_episode_steps)


def _map(env: Any) -> str:
    maze = getattr(env.unwrapped, "maze", None)
    return (
        "" if maze is None else "\n".join("".join("#" if cell == 1 else "." for cell in row) for row in maze.maze_map)
    )


def _scales(env: Any, adapter: Adapter) -> dict[str, float]:
    """Return return and length of episodes with uniformly random actions."""
    rng, returns, lengths = np.random.default_rng(0), [], []
    for seed in range(_EPISODES):
        env.reset(seed=seed)
        total, steps, ended = 0.0, 0, False
        while not ended:
            choice = (
                rng.integers(adapter.num_actions) if adapter.num_actions else rng.uniform(adapter.low, adapter.high)
            )
            _, reward, terminated, truncated, _ = env.step(adapter.action(np.asarray(choice)))
            total, steps, ended = total + float(reward), steps + 1, terminated or truncated
        returns.append(total)
        lengths.append(steps)
    return {
        "random_return": round(float(np.mean(returns)), 4),
        "random_episode_steps": round(float(np.mean(lengths)), 4),
    }
