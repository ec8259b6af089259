"""Environments of Isaac Lab 3, on the simulator that a task is set to. Runs in the process of its pack only.

Direct and manager-based tasks restart ended environments within a step, before they compute the next observations. The state
and the last observation of an episode are therefore read where the rewards are computed.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from dressage.envs.cards import Field
from dressage.envs.packs.batched.isaac_camera import Camera, tensor_of
from dressage.envs.packs.batched.protocol import Facts, Result, VisibleState
from dressage.envs.state import Array

_GROUP = "policy"
_ROOT = (
    ("root_position", "root_pos_w", 3, "m", "position of the base, from the origin of its environment"),
    ("root_quaternion", "root_quat_w", 4, "1", "orientation of the base as quaternion, in Isaac Lab's order"),
    ("root_velocity", "root_lin_vel_b", 3, "m/s", "velocity of the base in its own frame"),
    ("root_angular_velocity", "root_ang_vel_b", 3, "rad/s", "angular velocity of the base in its own frame"),
    ("root_gravity", "projected_gravity_b", 3, "1", "direction of gravity in the frame of the base"),
)
_JOINTS = (
    ("joint_positions", "joint_pos", "mixed", "positions of the joints"),
    ("joint_velocities", "joint_vel", "mixed", "velocities of the joints"),
)


class IsaacSimulator:
    """Isaac Lab's environments as a `Simulator`.

    :param visible: also load shapes that are only visible.
    :param camera: draws the environment after its first reset.
    """

    def __init__(
        self,
        env_id: str,
        *,
        num_envs: int,
        max_episode_steps: int | None,
        device: str,
        visible: bool = False,
        camera: Camera | None = None,
    ) -> None:
        with contextlib.redirect_stdout(sys.stderr):
            import gymnasium
            import isaaclab_tasks  # noqa: F401  registers the tasks
            from isaaclab_tasks.utils import parse_env_cfg

            self.num_envs, self._device = num_envs, device
            config: Any = parse_env_cfg(env_id, device=device, num_envs=num_envs)
            if max_episode_steps is not None:
                config.episode_length_s = max_episode_steps * config.sim.dt * config.decimation
            if visible:
                config.sim.physics.load_visual_shapes = True
            if camera is not None:
                camera.add_to(config)
            self._camera = camera
            self._env: Any = gymnasium.make(env_id, cfg=config, disable_env_checker=True).unwrapped
            self._managed = hasattr(self._env, "reward_manager")
            self._readers = self._fields()
            self._at_reward: VisibleState | None = None
            self._hook()

    def _hook(self) -> None:
        """Read the state where rewards are computed: after the simulation, before ended environments restart."""
        owner, name = (self._env.reward_manager, "compute") if self._managed else (self._env, "_get_rewards")
        stock: Callable[..., Any] = getattr(owner, name)

        def compute(*arguments: Any, **keywords: Any) -> Any:
            reward = stock(*arguments, **keywords)
            self._at_reward = VisibleState(_numbers(self._policy(self._observe())), self._read())
            return reward

        setattr(owner, name, compute)

    def _observe(self) -> Any:
        return self._env.observation_manager.compute() if self._managed else self._env._get_observations()

    @staticmethod
    def _policy(observation: Any) -> Any:
        return observation[_GROUP]

    def _fields(self) -> dict[str, tuple[Field, Callable[[], Any]]]:
        """Return each field and how to read it, by name."""
        readers: dict[str, tuple[Field, Callable[[], Any]]] = {}
        articulations = self._env.scene.articulations
        for owner, articulation in articulations.items():
            prefix = "" if len(articulations) == 1 else f"{owner}_"
            data, joints = articulation.data, tuple(articulation.joint_names)
            if not articulation.is_fixed_base:
                for name, attribute, size, unit, meaning in _ROOT:
                    centre = self._env.scene.env_origins if attribute == "root_pos_w" else None
                    field = Field(f"{prefix}{name}", (size,), unit, meaning)
                    readers[field.name] = (field, _reader(data, attribute, centre))
            for name, attribute, unit, meaning in _JOINTS if joints else ():
                field = Field(f"{prefix}{name}", (len(joints),), unit, f"{meaning}: {', '.join(joints)}")
                readers[field.name] = (field, _reader(data, attribute, None))
        return readers

    def _read(self) -> dict[str, Array]:
        return {name: _numbers(read()) for name, (_, read) in self._readers.items()}

    def joint_names(self) -> tuple[str, ...]:
        """Return the names of all joints, in the order of the fields."""
        return tuple(name for owner in self._env.scene.articulations.values() for name in owner.joint_names)

    def facts(self) -> Facts:
        env, size = self._env, int(np.prod(self._env.single_observation_space[_GROUP].shape))
        observation, terminations, rewards = (
            [("observation", size)],
            ["the task's own conditions"],
            ["the task's terms"],
        )
        if self._managed:
            manager = env.observation_manager
            sizes = [int(np.prod(shape)) for shape in manager.group_obs_term_dim[_GROUP]]
            observation = list(zip(manager.active_terms[_GROUP], sizes, strict=True))
            ends = env.termination_manager
            terminations = [name for name in ends.active_terms if not ends.get_term_cfg(name).time_out]
            rewards = list(env.reward_manager.active_terms)
        count = int(np.prod(env.single_action_space.shape))
        return Facts(
            observation=observation,
            action=[f"action_{index}" for index in range(count)],
            fields=[field for field, _ in self._readers.values()],
            time_step=float(env.step_dt),
            max_episode_steps=int(env.max_episode_length),
            terminations=terminations,
            rewards=rewards,
        )

    def reset(self, seed: int) -> None:
        with contextlib.redirect_stdout(sys.stderr):
            self._env.obs_buf, _ = self._env.reset(seed=seed)
            if self._camera is not None:
                self._camera.attach(self._env, device=self._device)

    def restart(self, rows: Array) -> None:
        import torch

        self._env._reset_idx(torch.as_tensor(rows, dtype=torch.int32, device=self._device))
        self._env.scene.write_data_to_sim()
        self._env.sim.forward()
        self._env.obs_buf = self._observe()

    def step(self, actions: Array) -> Result:
        import torch

        tensor = torch.as_tensor(actions, dtype=torch.float32, device=self._device)
        _, reward, terminated, timeouts, _ = self._env.step(tensor)
        assert self._at_reward is not None, "the task computes its rewards elsewhere"
        ended, late = (flag.cpu().numpy().astype(bool) for flag in (terminated, timeouts))
        return Result(self._at_reward, _numbers(reward), ended, late, restarted=ended | late)

    def visible_state(self) -> VisibleState:
        return VisibleState(_numbers(self._policy(self._env.obs_buf)), self._read())

    def spoil(self, row: int) -> None:
        articulation = next(iter(self._env.scene.articulations.values()))
        tensor_of(articulation.data.joint_pos)[row] = float("nan")

    def close(self) -> None:
        self._env.close()


def _reader(data: Any, attribute: str, centre: Any) -> Callable[[], Any]:
    def read() -> Any:
        value = tensor_of(getattr(data, attribute))
        return value if centre is None else value - tensor_of(centre)

    return read


def _numbers(array: Any) -> Array:
    return np.array(tensor_of(array).detach().cpu().numpy(), dtype=np.float64)
