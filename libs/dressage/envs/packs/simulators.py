"""Make the environments of packs. Runs in a pack's process only, where its packages can be imported.

Each environment has Gymnasium's interface. ``info["is_success"]`` is set where the environment defines success.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from dressage.envs.packs.registry import PACKS

_METAWORLD_STEPS = 500
_MAZE_STEPS = 800
_GLUCOSE_STEPS = 480
_TRAFFIC_STEPS = 500


def make(env_id: str, max_episode_steps: int | None = None) -> Any:
    """Return an environment of a pack.

    :param max_episode_steps: time limit; None: the environment's own.
    :raises ImportError: outside of the pack's process.
    """
    (name,) = (pack.name for pack in PACKS.values() if env_id in pack.environments)
    return _MAKERS[name](env_id, max_episode_steps)


def _robotics(env_id: str, steps: int | None) -> Any:
    import gymnasium
    import gymnasium_robotics

    gymnasium.register_envs(gymnasium_robotics)
    env = gymnasium.make(env_id, disable_env_checker=True, max_episode_steps=steps or _MAZE_STEPS)
    return _with_success(env, "success")


def _metaworld(env_id: str, steps: int | None) -> Any:
    import gymnasium
    from metaworld import env_dict

    class Seeded(gymnasium.Wrapper[Any, Any, Any, Any]):
        """Goals follow the seed of `reset`: Meta-World draws them when the environment is made."""

        def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
            stock: Any = self.env.unwrapped
            stock.seed(seed)
            return self.env.reset(seed=seed, options=options)

    task = env_id.removeprefix("metaworld-")
    inner = env_dict.ALL_V3_ENVIRONMENTS_GOAL_OBSERVABLE[f"{task}-goal-observable"](seed=0)
    inner._freeze_rand_vec, inner.seeded_rand_vec = False, True
    inner.max_path_length = 10**9  # the time limit below ends the episode, without an error
    limited = gymnasium.wrappers.TimeLimit(Seeded(inner), max_episode_steps=steps or _METAWORLD_STEPS)
    return _with_success(limited, "success", ever=True)


def _glucose(env_id: str, steps: int | None) -> Any:
    import gymnasium
    from simglucose.envs import T1DSimGymnaisumEnv

    class Seeded(T1DSimGymnaisumEnv):  # type: ignore[misc]
        """Meals and the sensor's noise follow the seed of `reset`; the package draws them when it is made."""

        def __init__(self, seed: int | None = None) -> None:
            super().__init__(patient_name="adolescent#002", seed=seed)

        def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
            if seed is not None:
                self.__init__(seed % 2**31)  # type: ignore[misc]
            return super().reset(seed=seed)

    return gymnasium.wrappers.TimeLimit(Seeded(), max_episode_steps=steps or _GLUCOSE_STEPS)


def _traffic(env_id: str, steps: int | None) -> Any:
    import gymnasium
    import sumo

    os.environ["SUMO_HOME"] = sumo.SUMO_HOME
    os.environ["LIBSUMO_AS_TRACI"] = "1"  # in this process, because it may start no other
    import sumo_rl

    class Seeded(gymnasium.Wrapper[Any, Any, Any, Any]):
        """SUMO takes a seed of 31 bits."""

        def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
            if seed is not None:
                stock: Any = self.env.unwrapped
                stock.sumo_seed = seed % 2**31
            return self.env.reset(seed=None, options=options)

    folder = Path(sumo_rl.__file__).parent / "nets" / "single-intersection"
    inner = gymnasium.make(
        "sumo-rl-v0",
        disable_env_checker=True,
        net_file=str(folder / "single-intersection.net.xml"),
        route_file=str(folder / "single-intersection.rou.xml"),
        use_gui=False,
        num_seconds=10**6,
        sumo_warnings=False,
    )
    return gymnasium.wrappers.TimeLimit(Seeded(inner), max_episode_steps=steps or _TRAFFIC_STEPS)


def _with_success(env: Any, name: str, *, ever: bool = False) -> Any:
    """Report ``info[name]`` as ``is_success``.

    :param ever: whether an episode counts that succeeded at any step; otherwise its last step counts.
    """
    import gymnasium

    class Success(gymnasium.Wrapper[Any, Any, Any, Any]):
        def reset(self, **given: Any) -> Any:
            self._succeeded = False
            return self.env.reset(**given)

        def step(self, action: Any) -> Any:
            observation, reward, terminated, truncated, info = self.env.step(action)
            now = bool(info[name])
            self._succeeded = self._succeeded or now
            return observation, reward, terminated, truncated, {**info, "is_success": self._succeeded if ever else now}

    return Success(env)


def _batched(env_id: str, steps: int | None) -> Any:
    from dressage.envs.packs.batched.single import LimitedEnv

    single = _kept(env_id, None)
    if steps is not None and steps > single.facts.max_episode_steps:
        single = _kept(env_id, steps)
    return LimitedEnv(single, steps or single.facts.max_episode_steps)


@functools.lru_cache(maxsize=2)
def _kept(env_id: str, steps: int | None) -> Any:
    """Return an environment that is kept, because it takes up to minutes to make; it is played one episode at a time."""
    from dressage.envs.packs.batched.single import SingleEnv
    from dressage.envs.packs.batched.words import TASKS

    return SingleEnv(env_id, max_episode_steps=steps, bound=TASKS[env_id].bound)


_MAKERS: Mapping[str, Callable[[str, int | None], Any]] = {
    "robotics": _robotics,
    "metaworld": _metaworld,
    "glucose": _glucose,
    "traffic": _traffic,
    "mjlab": _batched,
    "isaaclab": _batched,
}
