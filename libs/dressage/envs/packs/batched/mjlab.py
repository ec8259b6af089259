"""Environments of mjlab (1.6), on MuJoCo Warp. Runs in the process of its pack only."""

from __future__ import annotations

import contextlib
import functools
import os
import sys
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from dressage.envs.cards import Field
from dressage.envs.packs.batched.protocol import Facts, Result, VisibleState
from dressage.envs.state import Array

_NO_PROGRAMS = {"IMAGEIO_FFMPEG_EXE": "ffmpeg", "GIT_PYTHON_REFRESH": "quiet"}
"""Packages of mjlab start programs when they are imported, unless these variables are set."""
_HOOK = "dressage"
_GROUPS = ("actor", "policy")
_ROOT: Mapping[str, tuple[str, int, str, str]] = {
    "position": ("root_link_pos_w", 3, "m", "position of the base, from the origin of its environment"),
    "quaternion": ("root_link_quat_w", 4, "1", "orientation of the base as quaternion (w, x, y, z)"),
    "velocity": ("root_link_lin_vel_b", 3, "m/s", "velocity of the base in its own frame"),
    "angular_velocity": ("root_link_ang_vel_b", 3, "rad/s", "angular velocity of the base in its own frame"),
    "gravity": ("projected_gravity_b", 3, "1", "direction of gravity in the frame of the base"),
}
_JOINTS: Mapping[str, tuple[str, str, str]] = {
    "joint_positions": ("joint_pos", "mixed", "positions of the joints"),
    "joint_velocities": ("joint_vel", "mixed", "velocities of the joints"),
}


class MjlabSimulator:
    """mjlab's environments as a `Simulator`."""

    def __init__(self, env_id: str, *, num_envs: int, max_episode_steps: int | None, device: str) -> None:
        os.environ.update(_NO_PROGRAMS)
        with contextlib.redirect_stdout(sys.stderr):
            from mjlab.envs import ManagerBasedRlEnv
            from mjlab.managers.reward_manager import RewardTermCfg
            from mjlab.tasks.registry import load_env_cfg

            self.num_envs, self._device = num_envs, device
            self._at_reward: dict[str, Array] = {}
            config = load_env_cfg(env_id)
            config.scene.num_envs = num_envs
            config.auto_reset = False  # otherwise the last observation of an episode is lost
            if max_episode_steps is not None:
                step = config.sim.mujoco.timestep * config.decimation
                config.episode_length_s = max_episode_steps * step
            self._rewards = tuple(config.rewards)
            config.rewards = {**config.rewards, _HOOK: RewardTermCfg(func=self._hook(), weight=1.0)}
            self._env: Any = ManagerBasedRlEnv(cfg=config, device=device)
        self._group = next(name for name in _GROUPS if name in self._env.observation_manager.active_terms)
        self._readers = self._fields()
        self._ready = True

    _ready = False

    def _hook(self) -> Callable[[Any], Any]:
        """Return a term of 0 that reads the state where rewards are computed: before events and restarts.

        It is a function, because mjlab copies the terms deeply, and a method's object with it.
        """
        import torch

        def read(env: Any) -> Any:
            if self._ready:
                self._at_reward = self._read()
            return torch.zeros(env.num_envs, device=env.device)

        return read

    def _fields(self) -> dict[str, tuple[Field, Callable[[], Any]]]:
        """Return each field and how to read it, by name."""
        readers: dict[str, tuple[Field, Callable[[], Any]]] = {}
        moving = {
            name: entity
            for name, entity in self._env.scene.entities.items()
            if entity.joint_names or not entity.is_fixed_base
        }
        for entity_name, entity in moving.items():
            prefix = "" if len(moving) == 1 else f"{entity_name}_"
            data = entity.data
            if not entity.is_fixed_base:
                for name, (attribute, size, unit, meaning) in _ROOT.items():
                    field = Field(f"{prefix}root_{name}", (size,), unit, meaning)
                    readers[field.name] = (field, self._reader(data, attribute, centred=name == "position"))
            joints = tuple(entity.joint_names)
            for name, (attribute, unit, meaning) in _JOINTS.items() if joints else ():
                field = Field(f"{prefix}{name}", (len(joints),), unit, f"{meaning}: {', '.join(joints)}")
                readers[field.name] = (field, self._reader(data, attribute))
        for name in self._env.command_manager.active_terms:
            size = int(self._env.command_manager.get_command(name).shape[1])
            field = Field(f"command_{name}", (size,), "mixed", f"the command {name} that the policy is to follow")
            readers[field.name] = (field, functools.partial(self._env.command_manager.get_command, name))
        return readers

    def _reader(self, data: Any, attribute: str, *, centred: bool = False) -> Callable[[], Any]:
        if centred:
            return lambda: getattr(data, attribute) - self._env.scene.env_origins
        return lambda: getattr(data, attribute)

    def _read(self) -> dict[str, Array]:
        return {name: _numbers(read()) for name, (_, read) in self._readers.items()}

    def facts(self) -> Facts:
        manager = self._env.observation_manager
        sizes = [int(np.prod(shape)) for shape in manager.group_obs_term_dim[self._group]]
        terms = manager.active_terms[self._group]
        actions = self._env.action_manager
        names: list[str] = []
        for term_name in actions.active_terms:
            term = actions.get_term(term_name)
            targets = list(getattr(term, "target_names", ()))
            size = int(term.action_dim)
            names += targets if len(targets) == size else [f"{term_name}_{index}" for index in range(size)]
        ends = self._env.termination_manager
        return Facts(
            observation=list(zip(terms, sizes, strict=True)),
            action=names,
            fields=[field for field, _ in self._readers.values()],
            time_step=float(self._env.step_dt),
            max_episode_steps=int(self._env.max_episode_length),
            terminations=[name for name in ends.active_terms if not ends.get_term_cfg(name).time_out],
            rewards=self._rewards,
        )

    def reset(self, seed: int) -> None:
        with contextlib.redirect_stdout(sys.stderr):
            self._env.reset(seed=seed)

    def restart(self, rows: Array) -> None:
        import torch

        self._env.reset(env_ids=torch.as_tensor(rows, dtype=torch.int64, device=self._device))

    def step(self, actions: Array) -> Result:
        import torch

        tensor = torch.as_tensor(actions, dtype=torch.float32, device=self._device)
        observation, reward, terminated, timeouts, _ = self._env.step(tensor)
        return Result(
            state=VisibleState(_numbers(observation[self._group]), self._at_reward),
            reward=_numbers(reward),
            terminated=terminated.cpu().numpy().copy(),
            truncated=timeouts.cpu().numpy().copy(),
            restarted=np.zeros(self.num_envs, dtype=bool),
        )

    def visible_state(self) -> VisibleState:
        return VisibleState(_numbers(self._env.obs_buf[self._group]), self._read())

    def spoil(self, row: int) -> None:
        self._env.sim.data.qpos[row] = float("nan")

    def close(self) -> None:
        self._env.close()


def _numbers(tensor: Any) -> Array:
    return np.array(tensor.detach().cpu().numpy(), dtype=np.float64)
