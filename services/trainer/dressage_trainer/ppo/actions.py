"""What a policy's network puts out and how actions are drawn from it: Gaussian for boxes, categorical for numbered actions.

An actor draws one rollout's actions from noise that is made at its start, from each member's own generator, so that
companions never move a member's stream. Log probabilities wait until the rollout's end.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from dressage.errors import InvalidArgument

from dressage_trainer.ppo.interfaces import Arrays, Environment
from dressage_trainer.ppo.network import LOG_TWO_PI


@dataclass(frozen=True)
class ActionSpace:
    """The actions of an environment.

    :param size: components of a box action; 1 for numbered actions.
    :param num_actions: how many numbered actions there are, 0 .. num_actions - 1; None for a box.
    """

    size: int
    num_actions: int | None = None

    @property
    def discrete(self) -> bool:
        """Whether actions are numbered."""
        return self.num_actions is not None

    @property
    def outputs(self) -> int:
        """Numbers that the policy network puts out: means, or logits."""
        return self.size if self.num_actions is None else self.num_actions


def action_space_of(environment: Environment) -> ActionSpace:
    """The action space of an environment.

    :raises InvalidArgument: for numbered actions with several components, or fewer than two actions.
    """
    count = getattr(environment, "num_actions", 0)  # 0 for a box
    if not count:
        return ActionSpace(environment.action_size)
    if environment.action_size != 1 or count < 2:
        seen = f"{count} actions in {environment.action_size} components"
        raise InvalidArgument(field="environment.num_actions", value=seen, expected="at least 2 in one component")
    return ActionSpace(1, int(count))


class Actor(Protocol):
    """Draws the actions of a rollout of M members, T steps and n environments."""

    def begin(self, weights: Arrays, generators: list[np.random.Generator], shape: tuple[int, int]) -> None:
        """Take the members' weights and draw the noise of (T, n) steps."""

    def draw(self, index: int, output: np.ndarray) -> np.ndarray:
        """The (M, n, C) actions of step ``index`` from the network's (M, n, outputs), which may be overwritten."""

    def for_environment(self, action: np.ndarray) -> np.ndarray:
        """(M, n, C) actions as the environment is given them: (M * n, C), or (M * n,) numbers."""

    def log_probs(self) -> np.ndarray:
        """(M, T, n) log probabilities of the rollout's actions."""


class GaussianActor:
    """A diagonal Gaussian; the environment is given the sample clipped to the action's bounds, as by SB3."""

    def __init__(self, environment: Environment, dtype: Any) -> None:
        self._low, self._high, self._dtype = environment.action_low, environment.action_high, dtype
        self._size = environment.action_size
        self._noise = self._scaled = self._log_std = np.zeros(0)

    def begin(self, weights: Arrays, generators: list[np.random.Generator], shape: tuple[int, int]) -> None:
        """See `Actor`."""
        self._log_std = weights["log_std"][:, None, None, :]
        self._noise = np.stack([g.standard_normal((*shape, self._size), dtype=self._dtype) for g in generators])
        self._scaled = self._noise * np.exp(self._log_std)

    def draw(self, index: int, output: np.ndarray) -> np.ndarray:
        """See `Actor`."""
        output += self._scaled[:, index]
        return output

    def for_environment(self, action: np.ndarray) -> np.ndarray:
        """See `Actor`."""
        bounded: np.ndarray = np.clip(action.reshape(-1, self._size), self._low, self._high)
        return bounded

    def log_probs(self) -> np.ndarray:
        """See `Actor`."""
        total: np.ndarray = -0.5 * np.square(self._noise).sum(-1) - (self._log_std + 0.5 * LOG_TWO_PI).sum(-1)
        return total


class CategoricalActor:
    """Numbered actions by inverting the cumulative distribution at one uniform number each."""

    def __init__(self, dtype: Any) -> None:
        self._dtype = dtype
        self._uniform = np.zeros(0)
        self._log_probs = np.zeros(0)

    def begin(self, weights: Arrays, generators: list[np.random.Generator], shape: tuple[int, int]) -> None:
        """See `Actor`."""
        self._uniform = np.stack([g.random((*shape, 1)) for g in generators])
        self._log_probs = np.empty((len(generators), *shape), self._dtype)

    def draw(self, index: int, output: np.ndarray) -> np.ndarray:
        """See `Actor`."""
        log_p = log_softmax(output)
        below = np.cumsum(np.exp(log_p.astype(np.float64)), axis=-1)[..., :-1] <= self._uniform[:, index]
        action: np.ndarray = below.sum(axis=-1, keepdims=True)
        self._log_probs[:, index] = np.take_along_axis(log_p, action, axis=-1)[..., 0]
        drawn: np.ndarray = action.astype(self._dtype)
        return drawn

    def for_environment(self, action: np.ndarray) -> np.ndarray:
        """See `Actor`."""
        return action.reshape(-1).astype(np.int64)

    def log_probs(self) -> np.ndarray:
        """See `Actor`."""
        return self._log_probs


def log_softmax(logits: np.ndarray) -> np.ndarray:
    """Logarithms of the probabilities over the last axis."""
    shifted = logits - logits.max(axis=-1, keepdims=True)
    result: np.ndarray = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    return result


def make_actor(environment: Environment, dtype: Any) -> Actor:
    """The actor of an environment's action space."""
    discrete = action_space_of(environment).discrete
    return CategoricalActor(dtype) if discrete else GaussianActor(environment, dtype)
