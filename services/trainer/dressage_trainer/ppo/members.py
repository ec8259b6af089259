"""Members of a group: what each trains with, its learning rate, and its random streams.

One seed gives all of a member's streams, whichever members train in its company.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from dressage.envs import random_state
from dressage.errors import InvalidArgument
from dressage.training.hyperparameters import Hyperparameters

from dressage_trainer.ppo.distributions import action_space_of
from dressage_trainer.ppo.interfaces import Arrays, Environment
from dressage_trainer.ppo.networks import initial_weights, stack

_FIRST_TRAINING_SEED = 2**30
"""Environments train on seeds from here to 2**31; evaluation uses seeds below, so the two never meet."""


@dataclass(frozen=True)
class MemberSpec:
    """One member: a name, what it trains with, and the seed of all its randomness."""

    name: str
    hyperparameters: Hyperparameters
    seed: int


def group_members(members: Sequence[MemberSpec]) -> list[list[MemberSpec]]:
    """Split members into groups of equal shape, in order of first appearance."""
    groups: dict[Any, list[MemberSpec]] = {}
    for member in members:
        groups.setdefault(member.hyperparameters.shape_key, []).append(member)
    return list(groups.values())


def shared_settings(members: Sequence[MemberSpec], *, num_envs: int) -> Hyperparameters:
    """Return the hyperparameters of the first member, which stand for the group in all that fixes shapes.

    :param num_envs: environments of all members together.
    :raises InvalidArgument: unless the members have valid hyperparameters of one shape key, and these environments.
    """
    keys = {member.hyperparameters.validate().shape_key for member in members}
    if len(keys) != 1:
        raise InvalidArgument(
            field="members", value=sorted(map(str, keys)), expected="members of one shape key, at least one"
        )
    settings = members[0].hyperparameters
    rows = len(members) * settings.num_envs
    if num_envs != rows:
        raise InvalidArgument(field="environment.num_envs", value=num_envs, expected=str(rows))
    return settings


def most_epochs(members: Sequence[MemberSpec]) -> int:
    """The largest number of epochs of any member; members may differ in it."""
    return max(member.hyperparameters.epochs for member in members)


# Rates follow the size of the updates, whatever the length of the training: RSL-RL's rule (Rudin et al., 2022, "Learning to
# Walk in Minutes Using Massively Parallel Deep Reinforcement Learning"), once an update instead of once a minibatch. Beyond
# twice the desired KL divergence a rate is divided by 1.5, below half of it multiplied by 1.5 (decision 0063).
_RATE_FACTOR = 1.5
_LOWEST_RATE, _HIGHEST_RATE = 1 / 50, 10.0


def next_rate(rate: Any, kl: Any, *, desired: Any, first: Any) -> np.ndarray:
    """Return the learning rate after an update, within 1/50 and 10 times the first one.

    :param kl: mean approximate KL divergence of the update.
    :param desired: above 0.
    """
    changed = np.where(kl > 2 * desired, rate / _RATE_FACTOR, np.where(kl < desired / 2, rate * _RATE_FACTOR, rate))
    rates: np.ndarray = np.clip(changed, _LOWEST_RATE * first, _HIGHEST_RATE * first)
    return rates


class AdaptiveRates:
    """The learning rates of a group's members.

    :ivar now: (M,) float64.
    """

    def __init__(self, members: Sequence[MemberSpec]) -> None:
        self.now = np.array([member.hyperparameters.learning_rate for member in members])
        self._first = self.now.copy()
        self._desired = np.array([member.hyperparameters.desired_kl for member in members])

    def adapt(self, kl: np.ndarray, *, stopped: np.ndarray) -> None:
        """Adapt the rates after an update; a member without a desired divergence keeps its rate.

        :param kl: (M,) mean approximate KL divergences over the update's minibatches.
        :param stopped: (M,) True for members that train no more.
        """
        rates = next_rate(self.now, kl, desired=self._desired, first=self._first)
        self.now = np.where((self._desired > 0) & ~stopped, rates, self.now)


@dataclass(frozen=True)
class MemberStreams:
    """A member's generators and its environments' seeds."""

    weights: np.random.Generator
    noise: np.random.Generator
    order: np.random.Generator
    env_seeds: list[int]


def member_streams(seed: int, num_envs: int) -> MemberStreams:
    """Derive independent streams from one seed.

    :param seed: 0 .. 2**63 - 1.
    """
    weights, noise, order, environment = np.random.SeedSequence(seed).spawn(4)
    raw = environment.generate_state(num_envs, np.uint64)
    return MemberStreams(
        weights=np.random.default_rng(weights),
        noise=np.random.default_rng(noise),
        order=np.random.default_rng(order),
        env_seeds=[int(value % _FIRST_TRAINING_SEED) + _FIRST_TRAINING_SEED for value in raw],
    )


def first_weights(
    members: Sequence[MemberSpec], streams: Sequence[MemberStreams], environment: Environment, *, dtype: Any
) -> Arrays:
    """Draw the members' weights before training, stacked."""
    space = action_space_of(environment)
    return stack(
        [
            initial_weights(
                observation_size=environment.observation_size,
                action_size=space.outputs,
                hidden_sizes=member.hyperparameters.hidden_sizes,
                initial_log_std=None if space.discrete else member.hyperparameters.initial_log_std,
                rng=own.weights,
                dtype=dtype,
            )
            for member, own in zip(members, streams, strict=True)
        ]
    )


def minibatch_orders(members: Sequence[MemberSpec], generators: Sequence[np.random.Generator]) -> np.ndarray:
    """Draw a permutation of its samples for each epoch of each member, (epochs, M, T * n) integers.

    A member draws for its own epochs only: members with more epochs must not move its stream.
    """
    epochs, samples = most_epochs(members), members[0].hyperparameters.batch_size
    orders = np.empty((epochs, len(members), samples), np.int32)
    for index, (member, generator) in enumerate(zip(members, generators, strict=True)):
        for epoch in range(epochs):
            orders[epoch, index] = generator.permutation(samples) if epoch < member.hyperparameters.epochs else 0
    return orders


def pack_generator(generator: np.random.Generator) -> np.ndarray:
    """Return the state of a PCG64 generator as six uint64 words, see `dressage.envs.random_state`."""
    words: np.ndarray = random_state.pack([generator])[0]
    return words


def unpack_generator(words: np.ndarray) -> np.random.Generator:
    """Restore a generator, the inverse of `pack_generator`."""
    return random_state.unpack(words[None])[0]
