"""`DeviceEnv`, the protocol of N environments whose step is a pure function of JAX, so that a device runs whole rollouts.

Its state is a *carry*: named arrays of fixed shapes, which `step` takes and returns. A compiled loop (``jax.lax.scan``) over
`step` needs no copy to the host between policy, simulation and reward.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple, Protocol

from dressage.envs.cards import EnvironmentCard
from dressage.envs.catalogue import catalogue
from dressage.envs.state import State


def known_difference(env_id: str) -> str:
    """Return how an environment's simulation on a device is known to differ from MuJoCo beyond rounding; empty if it is not."""
    entry = catalogue().get(env_id)
    return entry.device_difference if entry is not None else ""


DeviceArray = Any
"""An array of JAX, also an abstract one; numpy's in snapshots."""
Carry = dict[str, DeviceArray]


class DeviceStep(NamedTuple):
    """The result of one step of N environments: arrays of JAX, in single precision.

    :param observation: (N, D) after auto-reset: the next action is for this one.
    :param final_observation: (N, D) before auto-reset: the last of an episode that ended.
    :param reward: (N,) the stock reward.
    :param terminated: (N,) bool.
    :param truncated: (N,) bool: the time limit, a divergence or an overflow.
    :param diverged: (N,) bool: the simulation diverged, or the action was not finite. Such a row is truncated with reward 0;
        its state after the step and its final observation repeat the last good ones.
    :param overflow: (N,) bool: the simulator had no place for all contacts or constraints. Treated like a divergence.
    :param before: simulator arrays before the step; `DeviceEnv.state` computes fields from them.
    :param after: simulator arrays after the step, before auto-reset.
    """

    observation: DeviceArray
    final_observation: DeviceArray
    reward: DeviceArray
    terminated: DeviceArray
    truncated: DeviceArray
    diverged: DeviceArray
    overflow: DeviceArray
    before: Mapping[str, DeviceArray]
    after: Mapping[str, DeviceArray]


class DeviceEnv(Protocol):
    """N environments on a device; each restarts on its own when its episode ends (auto-reset).

    ``provenance`` holds what distinguishes the simulation from the reference, by name.
    """

    num_envs: int
    card: EnvironmentCard
    observation_size: int
    action_size: int
    action_kind: Literal["box", "discrete"]
    num_actions: int
    action_low: Any
    """(A,) numbers of numpy, as those of `BatchEnv`."""
    action_high: Any
    provenance: Mapping[str, str]

    def init(self, key: Any) -> Carry:
        """Start an episode in each environment.

        :param key: a key of JAX, or several (G,), which divide the environments into G groups in order. All draws of a group
            come from its own key, so its episodes do not depend on the other groups.
        :raises InvalidArgument: when G does not divide N.
        """
        ...

    def step(self, carry: Carry, action: DeviceArray) -> tuple[Carry, DeviceStep]:
        """Apply actions (N, A), or integers (N,) where they are discrete, for one time step. A pure function."""
        ...

    def observation(self, carry: Carry) -> DeviceArray:
        """Return the observation (N, D) of a carry."""
        ...

    def state(self, raw: Mapping[str, DeviceArray]) -> State:
        """Return the fields of simulator arrays (`DeviceStep.before`, `DeviceStep.after`), computed when they are read."""
        ...

    def snapshot(self, carry: Carry) -> dict[str, DeviceArray]:
        """Return a carry as plain arrays of numpy: everything on which future steps depend."""
        ...

    def restore(self, snapshot: Mapping[str, DeviceArray]) -> Carry:
        """Return the carry of a snapshot, of this environment or of another of the same id, size and options."""
        ...
