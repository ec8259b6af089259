"""The algorithms that train stacked members: how a group builds one, and the entries of a policy's card about its network."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any, Protocol

from dressage.errors import InvalidArgument

from dressage_trainer.ppo import snapshot as ppo_snapshot
from dressage_trainer.ppo.device_collection import DeviceCollector
from dressage_trainer.ppo.interfaces import Environment, Reward
from dressage_trainer.ppo.members import MemberSpec
from dressage_trainer.ppo.ppo import PPO, Metrics
from dressage_trainer.ppo.vec_env import VecEnv
from dressage_trainer.sac import snapshot as sac_snapshot
from dressage_trainer.sac.sac import SAC
from dressage_trainer.speed.lanes import BackgroundCompilation, LaneUpdate
from dressage_trainer.speed.sac_lanes import SacLanes


class Update(Protocol):
    """The compiled updates of a group."""

    compilation: BackgroundCompilation


class Stacked(Protocol):
    """A group in training, which stands at an update boundary between two calls of `iterate`."""

    env: VecEnv
    updates: int

    def iterate(self) -> list[Metrics]:
        """Train up to the next boundary; a row of metrics for each member."""


@dataclass(frozen=True)
class Algorithm:
    """How an algorithm is built, saved and described."""

    update: Callable[..., Any]
    """An `Update` of ``(members, environment=, threads=)``."""
    build: Callable[..., Stacked]
    """A group of ``(members, environment, reward, update, steps=)``, with the environment steps of the training."""
    snapshot: ModuleType
    """``take``, ``restore``, ``policy_arrays`` and ``return_statistics``; of PPO ``continue_from`` too."""
    network: Mapping[str, Any]
    """Entries of a policy's card that describe the network."""


def _ppo(
    members: Sequence[MemberSpec], environment: Environment, reward: Reward, update: Any, *, steps: int
) -> Stacked:
    return PPO(members, environment=environment, reward=reward, optimise=update)


def _ppo_on_device(
    members: Sequence[MemberSpec], environment: Environment, reward: Reward, update: Any, *, steps: int
) -> Stacked:
    return PPO(members, environment=environment, reward=reward, optimise=update, collector=DeviceCollector)


def _sac(
    members: Sequence[MemberSpec], environment: Environment, reward: Reward, update: Any, *, steps: int
) -> Stacked:
    return SAC(members, environment=environment, reward=reward, steps=steps, optimise=update)


_ALGORITHMS = {
    "ppo": Algorithm(
        update=LaneUpdate,
        build=_ppo,
        snapshot=ppo_snapshot,
        network={},
    ),
    "sac": Algorithm(
        update=SacLanes,
        build=_sac,
        snapshot=sac_snapshot,
        network={"squash": True, "activation": "relu"},
    ),
}


_ON_DEVICE = replace(_ALGORITHMS["ppo"], build=_ppo_on_device)


def algorithm_of(name: str, *, on_device: bool = False) -> Algorithm:
    """Return an algorithm by its name; empty: PPO.

    :param on_device: whether the environments run on a device.
    :raises InvalidArgument: for an unknown one, or one that does not collect on a device.
    """
    if on_device:
        if name not in ("", "ppo"):
            raise InvalidArgument(field="algorithm", value=name, expected="ppo, where the environments run on a device")
        return _ON_DEVICE
    algorithm = _ALGORITHMS.get(name or "ppo")
    if algorithm is None:
        raise InvalidArgument(field="algorithm", value=name, expected=" or ".join(_ALGORITHMS))
    return algorithm
