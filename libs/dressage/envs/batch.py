"""`BatchEnv`, the one protocol that trainers know, and `make_batch`, which makes one for an environment id."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from dataclasses import field as with_default
from typing import Literal, Protocol

from dressage.envs import own
from dressage.envs.cards import EnvironmentCard
from dressage.envs.options import EnvOptions
from dressage.envs.state import Array, State
from dressage.errors import InvalidArgument

__all__ = ["BatchEnv", "BatchStep", "EnvOptions", "Info", "State", "make_batch"]

_MAX_ENVS = 65_536
_MAX_THREADS = 1_024


class Info(Mapping[str, Array]):
    """Stock Gymnasium's ``info`` of a step as arrays (N, ...), computed when it is first read.

    :param compute: gives the arrays by Gymnasium's names.
    """

    __slots__ = ("_compute", "_values")

    def __init__(self, compute: Callable[[], Mapping[str, Array]] | None = None) -> None:
        self._compute = compute
        self._values: Mapping[str, Array] | None = None

    def __getitem__(self, name: str) -> Array:
        return self._all()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._all())

    def __len__(self) -> int:
        return len(self._all())

    def _all(self) -> Mapping[str, Array]:
        if self._values is None:
            self._values = self._compute() if self._compute is not None else {}
        return self._values


@dataclass(frozen=True, slots=True)
class BatchStep:
    """What one step of N environments gave. All arrays are the caller's own.

    :param observation: (N, D) float64, after auto-reset: what to act on next.
    :param final_observation: (N, D) float64, before auto-reset: what the step led to.
    :param reward: (N,) float64, the stock reward.
    :param terminated: (N,) bool; both this and ``truncated`` may be set, as in stock Gymnasium.
    :param truncated: (N,) bool, by the time limit, or because the simulation diverged.
    :param state: the state before the step.
    :param next_state: the state after it, before auto-reset.
    :param info: what stock Gymnasium's ``info`` holds for the step.
    """

    observation: Array
    final_observation: Array
    reward: Array
    terminated: Array
    truncated: Array
    state: State
    next_state: State
    info: Info = with_default(default_factory=Info)


class BatchEnv(Protocol):
    """N environments stepped together, each restarted by itself when its episode ends (auto-reset).

    ``divergences`` counts the environment steps whose simulation diverged (or whose action was not finite): such a row
    is truncated with reward 0, its ``next_state`` and final observation repeat the last good ones.

    ``action_kind`` is ``box`` or ``discrete``; a discrete action is one integer below ``num_actions``, and ``action_size``
    is then 1.
    """

    num_envs: int
    card: EnvironmentCard
    observation_size: int
    action_size: int
    action_kind: Literal["box", "discrete"]
    num_actions: int
    action_low: Array
    action_high: Array
    divergences: int

    def reset(self, seeds: Sequence[int]) -> Array:
        """Start an episode in each environment, seeded as Gymnasium's ``reset(seed=...)`` does.

        :param seeds: one non-negative integer per environment.
        :returns: observations (N, D) float64.
        """
        ...

    def state(self) -> State:
        """The current state; stays valid after further steps."""
        ...

    def step(self, actions: Array) -> BatchStep:
        """Apply actions (N, A), or integers (N,) where they are discrete, for one time step.

        Box actions are not clipped here; the simulator clamps what it applies, and the stock reward's control cost counts
        them as given.
        """
        ...

    def snapshot(self) -> dict[str, Array]:
        """Everything that the future depends on, as plain arrays."""
        ...

    def restore(self, snapshot: Mapping[str, Array]) -> None:
        """Go on from a snapshot, of this batch or of another of the same environment, size and options, bit by bit."""
        ...


def make_batch(
    env_id: str,
    num_envs: int,
    *,
    num_threads: int,
    options: EnvOptions | None = None,
    fields: Collection[str] | None = None,
) -> BatchEnv:
    """A batch of environments: MuJoCo's on native threads, others in this one.

    :param env_id: an id that has a card, such as ``HalfCheetah-v5``, ``mjcf:dog`` or ``gymnasium:Pendulum-v1``.
    :param num_envs: 1 to 65,536.
    :param num_threads: threads that step the simulations, the caller's included.
    :param options: deviations from the stock environment.
    :param fields: names of the state's fields that will be read; None for all. Fewer fields mean fewer copies.
    :raises NotFound: for an unknown environment or field.
    :raises InvalidArgument: for a bad number or option.
    """
    options = options or EnvOptions()
    card = options.check(env_id)
    _check_count("num_envs", num_envs, _MAX_ENVS)
    _check_count("num_threads", num_threads, _MAX_THREADS)
    for name in fields or ():
        card.field(name)
    if env_id.startswith(own.GYMNASIUM):
        from dressage.envs.vector import VectorBatch

        return VectorBatch(card, num_envs, options=options, fields=fields)
    if env_id == "CartPole-v1":
        from dressage.envs.cart_pole import CartPoleBatch

        return CartPoleBatch(card, num_envs, options=options, fields=fields)
    from dressage.envs.mujoco_batch import MujocoBatch

    return MujocoBatch(card, num_envs, num_threads=num_threads, options=options, fields=fields)


def _check_count(name: str, value: int, limit: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= limit:
        raise InvalidArgument(field=name, value=value, expected=f"an integer from 1 to {limit}")
