"""Compiles an environment's kernels ahead of their use."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from dressage.envs.cards import load_card
from dressage.envs.options import EnvOptions
from dressage.episodes import compiling
from dressage.episodes.choice import episode_engine, lockstep
from dressage.policies.kinds import PolicySpec, kind


def compile_for(env_id: str, folder: Path) -> None:
    """Compile what `episode_engine` and `lockstep` need for an environment into a folder that this process may write.

    :raises NotFound: for an unknown environment.
    """
    compiling.write_to(folder)
    spec = PolicySpec.of("linear", load_card(env_id))
    engine = episode_engine(env_id, spec, (0,), EnvOptions(max_episode_steps=2))
    if engine is not None:
        engine.play(np.zeros((1, kind("linear").size(spec))))
    simulation = lockstep(env_id, EnvOptions(max_episode_steps=2))
    if simulation is not None:
        simulation.reset((0,))
        discrete = spec.action_count > 0
        actions = np.zeros(1, np.int64) if discrete else np.zeros((1, spec.action_size), np.float32)
        simulation.step(np.zeros(1, np.int64), actions)
