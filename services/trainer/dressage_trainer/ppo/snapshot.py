"""All of a group's state at an update boundary as flat named arrays, and the policies in it.

Restored into a `PPO` of the same members, a snapshot continues to the same bits.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict

import numpy as np
from dressage.errors import InvalidArgument

from dressage_trainer.ppo.faults import Faults, Stop
from dressage_trainer.ppo.interfaces import Arrays
from dressage_trainer.ppo.members import pack_generator, unpack_generator
from dressage_trainer.ppo.ppo import PPO
from dressage_trainer.ppo.train_state import Adam
from dressage_trainer.ppo.vec_env import VecEnv

_COLLECTOR = "collector/"
_VALUE = ("vf.", "value.")
"""How the names of the value network's tensors begin."""


def take(ppo: PPO) -> Arrays:
    """Copy everything that the next updates depend on."""
    collector = ppo.collector
    observation = collector.start()  # which may stop members
    collecting = {
        "current": observation.copy(),
        **{f"returns/{name}": value for name, value in collector.returns.arrays().items()},
        **ppo.env.snapshot(),
    }
    return {
        **{f"weights/{name}": value.copy() for name, value in ppo.weights.items()},
        **{f"adam/first/{name}": np.array(value) for name, value in ppo.adam.first.items()},
        **{f"adam/second/{name}": np.array(value) for name, value in ppo.adam.second.items()},
        "adam/step": np.array(ppo.adam.step),
        "learning_rates": ppo.rates.now.copy(),
        "generators/noise": np.stack([pack_generator(g) for g in collector.generators]),
        "generators/order": np.stack([pack_generator(g) for g in ppo.order_generators]),
        "updates": np.array(ppo.updates),
        "stops": pack_stops(ppo.env.faults),
        **{f"{_COLLECTOR}{name}": value for name, value in collecting.items()},
    }


def restore(ppo: PPO, arrays: Arrays) -> None:
    """Restore a snapshot, the inverse of `take`.

    :raises InvalidArgument: if the snapshot is of other members or shapes.
    """
    for name, value in ppo.weights.items():
        array = arrays.get(f"weights/{name}")
        if array is None or array.shape != value.shape:
            got = None if array is None else array.shape
            raise InvalidArgument(field=f"snapshot weights/{name}", value=got, expected=f"shape {value.shape}")
    names = list(ppo.weights)
    ppo.weights = {name: np.array(arrays[f"weights/{name}"]) for name in names}
    ppo.adam = Adam(
        np.array(arrays["adam/step"]),
        {name: np.array(arrays[f"adam/first/{name}"]) for name in names},
        {name: np.array(arrays[f"adam/second/{name}"]) for name in names},
    )
    ppo.rates.now = np.array(arrays["learning_rates"])
    ppo.order_generators = [unpack_generator(words) for words in arrays["generators/order"]]
    ppo.updates = int(arrays["updates"])
    unpack_stops(ppo.env.faults, arrays["stops"])
    collecting = {n.removeprefix(_COLLECTOR): value for n, value in arrays.items() if n.startswith(_COLLECTOR)}
    ppo.env.restore(collecting)
    collector = ppo.collector
    collector.generators = [unpack_generator(words) for words in arrays["generators/noise"]]
    collector.returns.load({n.removeprefix("returns/"): v for n, v in collecting.items() if n.startswith("returns/")})
    collector.last_observation = np.array(collecting["current"])


def pack_stops(faults: Faults) -> np.ndarray:
    """Return the stopped members as bytes."""
    return np.frombuffer(json.dumps([asdict(stop) for stop in faults.stops.values()]).encode(), np.uint8).copy()


def unpack_stops(faults: Faults, packed: np.ndarray) -> None:
    """Restore the stopped members, the inverse of `pack_stops`."""
    stops = json.loads(np.asarray(packed, np.uint8).tobytes() or b"[]")
    faults.stops.update({item["member"]: Stop(**item) for item in stops})


def continue_from(
    ppo: PPO, member: int, *, weights: Arrays, statistics: Mapping[str, float], keeps_value: bool
) -> None:
    """Put a member's policy and observation statistics in place of its first ones; Adam's state stays zero.

    Without `keeps_value` the value network and the return statistics stay as they began: they are of another reward.

    :param weights: by name, as `policy_arrays` returns them.
    :param statistics: those of the policy's card.
    :raises InvalidArgument: if a tensor is missing or has another shape.
    """
    for name, value in ppo.weights.items():
        if name.startswith(_VALUE) and not keeps_value:
            continue
        weight = weights.get(name)
        if weight is None or weight.shape != value[member].shape:
            got = None if weight is None else weight.shape
            raise InvalidArgument(field=f"start {name}", value=got, expected=f"shape {value[member].shape}")
        changed = np.array(value)
        changed[member] = weight
        ppo.weights[name] = changed
    moments = ppo.env.observations.moments
    arrays = moments.arrays()
    arrays["mean"][member], arrays["var"][member] = weights["obs_mean"], weights["obs_var"]
    arrays["count"][member] = statistics["obs_count"]
    ppo.env.observations.load(arrays)
    if keeps_value:
        returns = ppo.collector.returns.arrays()
        for name in ("mean", "var", "count"):
            returns[name][member] = statistics[f"return_{name}"]
        ppo.collector.returns.load(returns)


def policy_arrays(ppo: PPO, member: int) -> Arrays:
    """A member's weights and observation statistics, named as in the policy bundle."""
    weights = {name: value[member].copy() for name, value in ppo.weights.items()}
    return {**weights, **policy_statistics(ppo.env, member)}


def policy_statistics(env: VecEnv, member: int) -> Arrays:
    """A member's observation statistics, named as in the policy bundle."""
    moments = env.observations.moments
    return {"obs_mean": moments.mean[member].copy(), "obs_var": moments.var[member].copy()}


def return_statistics(ppo: PPO, member: int) -> dict[str, float]:
    """Mean, variance and count of a member's discounted return, for export to VecNormalize."""
    moments = ppo.collector.returns.moments
    named = {"return_mean": moments.mean, "return_var": moments.var, "return_count": moments.count}
    return {name: float(value[member]) for name, value in named.items()}
