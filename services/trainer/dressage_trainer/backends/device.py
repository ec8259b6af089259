"""What a group trains on where the environments run on a device: the simulation, and the reward compiled into its loop."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dressage.contracts.device import DeviceReward, trace_reward
from dressage.contracts.failures import RewardError
from dressage.envs.on_device import make_device_env
from dressage.envs.state import State
from dressage.sandbox.heartbeat import heartbeat

from dressage_trainer.backends.group import MemberSetup
from dressage_trainer.backends.reward import fields_read
from dressage_trainer.ppo.device_collection import DeviceRows, RewardMemory


class WatchedDeviceReward(DeviceReward):
    """A reward whose calls are watched: JAX calls it when it compiles, and a loop in the reward may never end."""

    def __call__(
        self, memory: Mapping[str, Any], state: State, action: Any, next_state: State
    ) -> tuple[dict[str, Any], Any]:
        with heartbeat():
            return super().__call__(memory, state, action, next_state)


def parts_on_device(setup: MemberSetup, *, members: int, num_envs: int) -> tuple[DeviceRows, RewardMemory]:
    """Return the environments of a group and its reward.

    :param num_envs: of each member.
    :raises RewardError: for a reward that cannot be compiled for a device (rule ``traceable``). The check of a service without
        JAX does not find it.
    :raises Unavailable: where MuJoCo Warp is not installed.
    """
    rows, spec = members * num_envs, setup.spec
    with heartbeat():
        obstacle = trace_reward(setup.module, setup.card)
    if obstacle is not None:
        raise RewardError(obstacle.rule, obstacle.message, line=obstacle.line, seen=obstacle.seen)
    reward = WatchedDeviceReward(setup.module, rows)
    fields = fields_read(spec.reward_source, setup.module, setup.card)
    env = make_device_env(spec.environment, rows, options=setup.options, fields=fields)
    return DeviceRows(env, members), RewardMemory(reward)
