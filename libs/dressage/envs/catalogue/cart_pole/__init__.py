"""CartPole-v1: its card, its fields, and its `BATCH`, which is arithmetic on (N, 4) arrays instead of a simulator.

Its numbers are stock Gymnasium's, in the order of its operations, so that a row equals a stock episode to the bit. Stock
computes in float64 and observes in float32; here the observation is float64 with those float32 values.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from dressage.envs import random_state
from dressage.envs.cards import ActionComponent, EnvironmentCard, Field, ObservationComponent
from dressage.envs.fields import BoundField, observation_field, scalar, time_field
from dressage.envs.namespace import library_of
from dressage.envs.options import EnvOptions
from dressage.envs.protocol import BatchStep, check_snapshot, environment_bytes
from dressage.envs.state import Array, Raw, State
from dressage.errors import FailedPrecondition, InvalidArgument

GRAVITY, CART_MASS, POLE_MASS, HALF_POLE = 9.8, 1.0, 0.1, 0.5
TOTAL_MASS = POLE_MASS + CART_MASS
POLE_MOMENT = POLE_MASS * HALF_POLE
FORCE, TIME_STEP = 10.0, 0.02
ANGLE_LIMIT, PLACE_LIMIT = 12 * 2 * math.pi / 360, 2.4
START = 0.05
_ACTIONS = 2


def bound_fields() -> list[BoundField]:
    """Return the fields, computed from the arrays ``state`` (N, 4) and ``time`` (N,)."""
    leans = "unwrapped, 0 = upright, positive = it leans towards +x"
    return [
        observation_field(4, ("state",), observation),
        time_field(),
        scalar("x_position", "m", "position of the cart along x, 0 = middle of the track", "state", 0),
        scalar("x_velocity", "m/s", "velocity of the cart along x, positive = right", "state", 1),
        scalar("pole_angle", "rad", f"angle of the pole from upright, {leans}", "state", 2),
        scalar("pole_velocity", "rad/s", "rate of pole_angle", "state", 3),
        BoundField(
            Field("tip_height", (), "m", "height of the pole's upper end above the cart's hinge"),
            _tip_height,
            ("state",),
        ),
    ]


def observation(raw: Raw) -> Array:
    """Return the stock observation (N, 4)."""
    state = raw["state"]
    rounded: Array = state.astype(np.float32).astype(state.dtype)
    return rounded


def _tip_height(raw: Raw) -> Array:
    angle = raw["state"][:, 2]
    height: Array = 2 * HALF_POLE * library_of(angle).cos(angle)
    return height


def build_card(env_id: str, stock: Any, *, max_episode_steps: int) -> EnvironmentCard:
    """Return the card, with its numbers from the live stock environment.

    :raises SystemExit: where they are not those that the batch computes with.
    """
    live = (stock.gravity, stock.masscart, stock.masspole, stock.length, stock.force_mag, stock.tau)
    ours = (GRAVITY, CART_MASS, POLE_MASS, HALF_POLE, FORCE, TIME_STEP)
    limits = (stock.theta_threshold_radians, stock.x_threshold, int(stock.action_space.n))
    if live != ours or limits != (ANGLE_LIMIT, PLACE_LIMIT, _ACTIONS):
        raise SystemExit(f"{env_id}: stock Gymnasium's numbers have changed: {live}, {limits}")
    action = ActionComponent(
        "push", 0, _ACTIONS - 1, "1", f"0 = push the cart left (-x), 1 = push it right (+x), with {stock.force_mag:g} N"
    )
    names = (("cart_position", "m"), ("cart_velocity", "m/s"), ("pole_angle", "rad"), ("pole_velocity", "rad/s"))
    return EnvironmentCard(
        id=env_id,
        title="pole on a cart, pushed left or right",
        description=(
            f"A cart slides along a level track (the x axis) and carries a pole of {2 * stock.length:g} m on a hinge, "
            "upright at the start. In each step the cart is pushed left or right with the same force; there is no third "
            "choice. The pole falls unless it is balanced."
        ),
        fields=tuple(entry.field for entry in bound_fields()),
        observation_components=tuple(ObservationComponent(name, unit, name.replace("_", " ")) for name, unit in names),
        action=(action,),
        action_kind="discrete",
        num_actions=_ACTIONS,
        observation_size=4,
        time_step=float(stock.tau),
        max_episode_steps=max_episode_steps,
        can_terminate=True,
        termination=(
            f"the step after which |x_position| > {stock.x_threshold:g} m or |pole_angle| > "
            f"{stock.theta_threshold_radians:.4g} rad."
        ),
        stock_reward="1 for every step",
        example_intents=(
            "balance the pole",
            "balance the pole at the middle of the track",
            "balance the pole while moving to the right",
        ),
        options={"max_episode_steps": max_episode_steps},
    )


class CartPoleBatch:
    """CartPole-v1 as a `BatchEnv`."""

    def __init__(
        self, card: EnvironmentCard, num_envs: int, *, options: EnvOptions, fields: Collection[str] | None
    ) -> None:
        self.card, self.num_envs = card, num_envs
        self.observation_size, self.action_size = card.observation_size, card.action_size
        self.action_kind, self.num_actions = card.action_kind, card.num_actions
        self.action_low = np.zeros(1, dtype=np.float32)
        self.action_high = np.full(1, card.num_actions - 1, dtype=np.float32)
        self.divergences = 0
        self._limit = options.max_episode_steps or card.max_episode_steps
        bound = [entry for entry in bound_fields() if fields is None or entry.field.name in fields]
        self._functions = {entry.field.name: entry.function for entry in bound}
        self._generators: list[np.random.Generator] = []
        self._elapsed = np.zeros(num_envs, dtype=np.int64)
        self._values: Array | None = None
        self._state = State()

    def reset(self, seeds: Sequence[int]) -> Array:
        if len(seeds) != self.num_envs:
            expected = f"{self.num_envs} seeds, one per environment"
            raise InvalidArgument(field="seeds", value=len(seeds), expected=expected)
        self._generators = [random_state.generator(seed) for seed in seeds]
        self._elapsed[:] = 0
        return self._adopt(np.stack([_start(stream) for stream in self._generators]))

    def state(self) -> State:
        self._current()
        return self._state

    def step(self, actions: Array) -> BatchStep:
        before, state = self._current(), self._state
        after = _advance(before, self._check_actions(actions))
        self._elapsed += 1
        diverged = ~np.isfinite(after).all(axis=1)
        self.divergences += int(diverged.sum())
        after[diverged] = before[diverged]
        terminated = (np.abs(after[:, 0]) > PLACE_LIMIT) | (np.abs(after[:, 2]) > ANGLE_LIMIT)
        terminated &= ~diverged
        truncated = (self._elapsed >= self._limit) | diverged
        raw = self._raw(after)
        final, next_state = observation(raw), State(raw=raw, functions=self._functions)
        done = np.flatnonzero(terminated | truncated)
        fresh = after.copy()
        for row in done:
            fresh[row] = _start(self._generators[row])
        self._elapsed[done] = 0
        seen = self._adopt(fresh)
        return BatchStep(seen, final, np.where(diverged, 0.0, 1.0), terminated, truncated, state, next_state)

    def snapshot(self) -> dict[str, Array]:
        return {
            "environment": environment_bytes(self.card.id),
            "simulation": self._current().copy(),
            "generators": random_state.pack(self._generators),
            "elapsed_steps": self._elapsed.copy(),
            "divergences": np.array(self.divergences, dtype=np.int64),
        }

    def restore(self, snapshot: Mapping[str, Array]) -> None:
        shapes: dict[str, tuple[int, ...]] = {
            "simulation": (self.num_envs, 4),
            "generators": (self.num_envs, random_state.WIDTH),
            "elapsed_steps": (self.num_envs,),
            "divergences": (),
        }
        check_snapshot(snapshot, self.card.id, shapes)
        self._generators = random_state.unpack(snapshot["generators"])
        self._elapsed = snapshot["elapsed_steps"].astype(np.int64)
        self.divergences = int(snapshot["divergences"])
        self._adopt(np.array(snapshot["simulation"], dtype=np.float64))

    def _adopt(self, values: Array) -> Array:
        self._values = values
        raw = self._raw(values)
        self._state = State(raw=raw, functions=self._functions)
        return observation(raw)

    def _raw(self, values: Array) -> dict[str, Array]:
        return {"state": values, "time": self._elapsed * self.card.time_step}

    def _current(self) -> Array:
        if self._values is None:
            raise FailedPrecondition("the batch has no state yet: call reset(seeds) or restore(snapshot) first")
        return self._values

    def _check_actions(self, actions: Array) -> Array:
        actions = np.asarray(actions)
        fits = actions.shape == (self.num_envs,) and actions.dtype.kind in "iu"
        if not fits or not ((actions >= 0) & (actions < self.num_actions)).all():
            expected = f"integers from 0 to {self.num_actions - 1} of shape ({self.num_envs},)"
            raise InvalidArgument(field="actions", value=f"{actions.dtype} {actions.shape}", expected=expected)
        return actions


def _start(stream: np.random.Generator) -> Array:
    return stream.uniform(low=-START, high=START, size=(4,))


def _advance(values: Array, actions: Array) -> Array:
    """Return one Euler step from (N, 4) states."""
    return np.stack(_euler_step(values.T, actions == 1), axis=1)


def _euler_step(values: Sequence[Array] | Array, right: Array) -> list[Array]:
    """Return one Euler step, as stock Gymnasium computes it.

    :param values: the four columns of the state, (N,) each.
    :param right: (N,) bool: which carts are pushed right.
    """
    x, x_dot, theta, theta_dot = values
    xp = library_of(theta)
    force = xp.where(right, FORCE, -FORCE)
    cos, sin = xp.cos(theta), xp.sin(theta)
    temp = (force + POLE_MOMENT * (theta_dot * theta_dot) * sin) / TOTAL_MASS
    theta_acc = (GRAVITY * sin - cos * temp) / (HALF_POLE * (4.0 / 3.0 - POLE_MASS * (cos * cos) / TOTAL_MASS))
    x_acc = temp - POLE_MOMENT * theta_acc * cos / TOTAL_MASS
    return [
        x + TIME_STEP * x_dot,
        x_dot + TIME_STEP * x_acc,
        theta + TIME_STEP * theta_dot,
        theta_dot + TIME_STEP * theta_acc,
    ]


def raw_arrays(stock: Any, time: float) -> dict[str, Array]:
    """Return the arrays of one row that the fields are computed from, of Gymnasium's environment."""
    return {"state": np.array(stock.state), "time": np.array(time)}


def motion(raw: Raw) -> tuple[Array, Array]:
    """Return positions (T, 2) and velocities (T, 2) of cart and pole."""
    return raw["state"][:, 0::2], raw["state"][:, 1::2]


BATCH = CartPoleBatch
