"""All of a group's state at a report as flat named arrays, and the policies in it; see `dressage_trainer.ppo.snapshot`."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
from dressage.errors import InvalidArgument

from dressage_trainer.ppo.interfaces import Arrays
from dressage_trainer.ppo.members import pack_generator, unpack_generator
from dressage_trainer.ppo.snapshot import pack_stops, policy_statistics, unpack_stops
from dressage_trainer.sac.sac import SAC

_STATE, _REPLAY, _ENV = "state/", "replay/", "env/"


def take(sac: SAC) -> Arrays:
    """Copy everything that the next steps depend on; the replay buffer is copied only once it is full."""
    observation = sac.start()  # which may stop members
    assert sac.env.raw_observation is not None
    return {
        **{f"{_STATE}{name}": np.array(value) for name, value in _leaves(sac)},
        **{f"{_REPLAY}{name}": value for name, value in sac.replay.arrays().items()},
        **{f"{_ENV}{name}": value for name, value in sac.env.snapshot().items()},
        "current": observation.copy(),
        "current_raw": sac.env.raw_observation.copy(),
        "generators/noise": np.stack([pack_generator(g) for g in sac.noise_generators]),
        "generators/batch": np.stack([pack_generator(g) for g in sac.batch_generators]),
        "updates": np.array(sac.updates),
        "gradient_steps": np.array(sac.gradient_steps),
        "stops": pack_stops(sac.env.faults),
    }


def _leaves(sac: SAC) -> list[tuple[str, Any]]:
    """Return the state's arrays with their names."""
    return [(jax.tree_util.keystr(path, simple=True, separator="/"), leaf) for path, leaf in _flat(sac)]


def _flat(sac: SAC) -> list[tuple[Any, Any]]:
    return jax.tree_util.tree_flatten_with_path(sac.state)[0]


def restore(sac: SAC, arrays: Arrays) -> None:
    """Restore a snapshot, the inverse of `take`.

    :raises InvalidArgument: if the snapshot is of other members or shapes.
    """
    leaves = []
    for name, value in _leaves(sac):
        array = arrays.get(f"{_STATE}{name}")
        if array is None or array.shape != value.shape:
            got = None if array is None else array.shape
            raise InvalidArgument(field=f"snapshot {_STATE}{name}", value=got, expected=f"shape {value.shape}")
        leaves.append(np.array(array))

    def part(prefix: str) -> Arrays:
        return {n.removeprefix(prefix): value for n, value in arrays.items() if n.startswith(prefix)}

    sac.put_state(jax.tree.unflatten(jax.tree.structure(sac.state), leaves))
    sac.replay.load(part(_REPLAY))
    sac.env.restore(part(_ENV))
    sac.noise_generators = [unpack_generator(words) for words in arrays["generators/noise"]]
    sac.batch_generators = [unpack_generator(words) for words in arrays["generators/batch"]]
    sac.updates, sac.gradient_steps = int(arrays["updates"]), int(arrays["gradient_steps"])
    unpack_stops(sac.env.faults, arrays["stops"])
    sac.last_observation, sac.env.raw_observation = np.array(arrays["current"]), np.array(arrays["current_raw"])


def policy_arrays(sac: SAC, member: int) -> Arrays:
    """A member's actor and observation statistics, named as in the policy bundle."""
    actor = {name: np.array(value[member]) for name, value in sac.state.actor.weights.items()}
    return {**actor, **policy_statistics(sac.env, member)}


def return_statistics(sac: SAC, member: int) -> dict[str, float]:
    """None: rewards are not normalised."""
    return {}
