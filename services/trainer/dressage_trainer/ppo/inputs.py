"""What of an observation the networks see: its leading components, where a training asks for fewer than all.

The trained networks are of the smaller size, as if the environment returned no more. A stored policy takes whole observations:
its first layers have weights of 0 for the other components.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from dressage.errors import InvalidArgument
from dressage.training.hyperparameters import Hyperparameters

from dressage_trainer.ppo.interfaces import Arrays

_STATISTICS = {"obs_mean": 0.0, "obs_var": 1.0}
_FIRST_LAYERS = ("pi.0.weight", "vf.0.weight")


class LeadingObservations:
    """A batch of environments whose observations are the first ``inputs`` components of another batch's."""

    def __init__(self, batch: Any, inputs: int) -> None:
        self._batch, self.observation_size = batch, inputs

    def __getattr__(self, name: str) -> Any:
        return getattr(self._batch, name)

    def reset(self, seeds: Any) -> np.ndarray:
        observation: np.ndarray = self._batch.reset(seeds)
        return observation[:, : self.observation_size]

    def step(self, actions: np.ndarray) -> Any:
        step, inputs = self._batch.step(actions), self.observation_size
        return replace(
            step, observation=step.observation[:, :inputs], final_observation=step.final_observation[:, :inputs]
        )


def seen_by_networks(batch: Any, hyperparameters: Hyperparameters) -> Any:
    """Return a batch of environments with the observations that the networks of a training see.

    :raises InvalidArgument: for more components than the observation has.
    """
    inputs = hyperparameters.inputs(batch.observation_size)
    return batch if inputs == batch.observation_size else LeadingObservations(batch, inputs)


def widen(weights: Mapping[str, np.ndarray], observation_size: int) -> Arrays:
    """Return a policy's tensors for whole observations: weights of 0, means of 0 and variances of 1 for what was not seen."""
    wide = dict(weights)
    for name in (*_FIRST_LAYERS, *_STATISTICS):
        if name in wide and wide[name].shape[-1] < observation_size:
            value = wide[name]
            full = np.full((*value.shape[:-1], observation_size), _STATISTICS.get(name, 0.0), value.dtype)
            full[..., : value.shape[-1]] = value
            wide[name] = full
    return wide


def narrow(weights: Mapping[str, np.ndarray], inputs: int) -> Arrays:
    """Return a policy's tensors for the components that a training sees, the inverse of `widen`.

    :raises InvalidArgument: for a policy that uses other components.
    """
    narrow = dict(weights)
    for name in (*_FIRST_LAYERS, *_STATISTICS):
        if name not in narrow or narrow[name].shape[-1] <= inputs:
            continue
        if name in _FIRST_LAYERS and narrow[name][..., inputs:].any():
            expected = f"a policy that uses no more than the first {inputs} components of the observation"
            raise InvalidArgument(field=f"start {name}", value=narrow[name].shape[-1], expected=expected)
        narrow[name] = narrow[name][..., :inputs]
    return narrow
