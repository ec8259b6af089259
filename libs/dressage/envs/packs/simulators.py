"""Make the environments of packs. Runs in a pack's process only, where its packages can be imported.

Each environment has Gymnasium's interface. ``info["is_success"]`` is set where the environment defines success.
"""

from __future__ import annotations

import functools
import importlib
from typing import Any

from dressage.envs.catalogue import catalogue
from dressage.envs.packs.registry import PACKS


def make(env_id: str, max_episode_steps: int | None = None) -> Any:
    """Return an environment of a pack.

    :param max_episode_steps: time limit; None: the environment's own.
    :raises ImportError: outside of the pack's process.
    """
    entry = catalogue()[env_id]
    if PACKS[entry.pack].batched:
        return _batched_env(env_id, max_episode_steps)
    return importlib.import_module(entry.module).make(env_id, max_episode_steps)


def report_success(env: Any, name: str, *, ever: bool = False) -> Any:
    """Return the environment that reports ``info[name]`` as ``is_success``.

    :param ever: whether an episode counts that succeeded at any step; otherwise its last step counts.
    """
    import gymnasium

    class Success(gymnasium.Wrapper[Any, Any, Any, Any]):
        def reset(self, **arguments: Any) -> Any:
            self._succeeded = False
            return self.env.reset(**arguments)

        def step(self, action: Any) -> Any:
            observation, reward, terminated, truncated, info = self.env.step(action)
            now = bool(info[name])
            self._succeeded = self._succeeded or now
            return observation, reward, terminated, truncated, {**info, "is_success": self._succeeded if ever else now}

    return Success(env)


def _batched_env(env_id: str, steps: int | None) -> Any:
    from dressage.envs.packs.batched.single import LimitedEnv

    single = _cached_env(env_id, None)
    if steps is not None and steps > single.facts.max_episode_steps:
        single = _cached_env(env_id, steps)
    return LimitedEnv(single, steps or single.facts.max_episode_steps)


@functools.lru_cache(maxsize=2)
def _cached_env(env_id: str, steps: int | None) -> Any:
    """Return an environment that is kept, because it takes up to minutes to make; it is played one episode at a time."""
    from dressage.envs.packs.batched.single import SingleEnv

    task = importlib.import_module(catalogue()[env_id].module).TASK
    return SingleEnv(env_id, max_episode_steps=steps, bound=task.bound)
