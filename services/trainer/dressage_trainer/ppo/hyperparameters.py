"""PPO's hyperparameters: one frozen value, checked before anything is built from it.

The checks are of physical validity only: a person may set any value that PPO can compute with (an entropy
coefficient of 0, a run of one update). Narrower bounds for what a language model suggests belong to the proposer.

Two kinds of parameter matter to the stacked update. Those of the `shape_key` fix array shapes, so members that
differ in them train in separate groups; all others are per-member numbers of the same compiled update.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from dressage.errors import InvalidArgument
from dressage.limits import MAX_UPDATE_SAMPLES, MAX_UPDATE_VISITS

_MAX_EPOCHS = 10_000
_MOST = 1e30  # single precision ends at 3e38
_MAX_HIDDEN_LAYERS = 8
_MAX_HIDDEN_UNITS = 4096
_LOG_STD = (-10, 5)

ShapeKey = tuple[int, int, int, tuple[int, ...], bool, bool]


@dataclass(frozen=True)
class Hyperparameters:
    """What one member trains with; the defaults are Stable-Baselines3's, on 16 environments."""

    learning_rate: float = 3e-4
    """Adam's step size, > 0."""
    num_envs: int = 16
    """Environments that the member collects from at once, >= 1."""
    num_steps: int = 128
    """Steps per environment between two updates, >= 1; an update sees num_envs * num_steps samples."""
    minibatch_size: int = 64
    """Samples per gradient step, 1 .. num_envs * num_steps; a last, smaller minibatch is used as SB3 uses it.
    Advantages are normalised over a minibatch, but for one of a single sample, which has no deviation."""
    epochs: int = 10
    """Passes over the samples in an update, 1 .. 10,000."""
    discount: float = 0.99
    """Gamma, 0 .. 1."""
    gae_lambda: float = 0.95
    """Lambda of generalised advantage estimation, 0 .. 1."""
    clip_range: float = 0.2
    """Bound of the probability ratio's change, > 0."""
    entropy_coef: float = 0.0
    """Weight of the entropy bonus, >= 0."""
    value_coef: float = 0.5
    """Weight of the value loss, >= 0."""
    max_grad_norm: float = 0.5
    """Bound of the gradient's norm over all weights, > 0."""
    target_kl: float | None = None
    """The update ends early once a minibatch's approximate KL exceeds 1.5 times this, > 0; None: never."""
    initial_log_std: float = 0.0
    """Logarithm of the policy's standard deviation before training, -10 .. 5."""
    hidden_sizes: tuple[int, ...] = (64, 64)
    """Units of each hidden layer of the policy and of the value network."""
    normalize_observation: bool = True
    """Normalise observations by their running mean and variance."""
    normalize_reward: bool = True
    """Divide rewards by the running standard deviation of the discounted return."""

    @property
    def batch_size(self) -> int:
        """Samples of one update."""
        return self.num_envs * self.num_steps

    @property
    def shape_key(self) -> ShapeKey:
        """Members with equal keys share one compiled update. The number of epochs is not part of it."""
        return (
            self.num_envs,
            self.num_steps,
            self.minibatch_size,
            self.hidden_sizes,
            self.normalize_observation,
            self.normalize_reward,
        )

    def validate(self) -> Hyperparameters:
        """Return self; raise InvalidArgument naming the first field that is wrong."""
        for name in ("num_envs", "num_steps", "minibatch_size", "epochs"):
            _check(name, getattr(self, name), _is_int(getattr(self, name), low=1), "an integer >= 1")
        _check("epochs", self.epochs, self.epochs <= _MAX_EPOCHS, f"at most {_MAX_EPOCHS}")
        for name in ("learning_rate", "clip_range", "max_grad_norm"):
            value = getattr(self, name)
            _check(name, value, _is_number(value) and 0 < value <= _MOST, f"a number > 0, at most {_MOST:g}")
        for name in ("entropy_coef", "value_coef"):
            value = getattr(self, name)
            _check(name, value, _is_number(value) and 0 <= value <= _MOST, f"a number >= 0, at most {_MOST:g}")
        for name in ("discount", "gae_lambda"):
            value = getattr(self, name)
            _check(name, value, _is_number(value) and 0 <= value <= 1, "a number between 0 and 1")
        log_std, (low, high) = self.initial_log_std, _LOG_STD
        ok = _is_number(log_std) and low <= log_std <= high
        _check("initial_log_std", log_std, ok, f"a number between {low} and {high}")
        kl = self.target_kl
        ok = kl is None or (_is_number(kl) and 0 < kl <= _MOST)
        _check("target_kl", kl, ok, f"a number > 0, at most {_MOST:g}, or none")
        for name in ("normalize_observation", "normalize_reward"):
            _check(name, getattr(self, name), isinstance(getattr(self, name), bool), "true or false")
        self._validate_sizes()
        return self

    def _validate_sizes(self) -> None:
        sizes = self.hidden_sizes
        ok = isinstance(sizes, tuple) and 1 <= len(sizes) <= _MAX_HIDDEN_LAYERS
        ok = ok and all(_is_int(size, low=1) and size <= _MAX_HIDDEN_UNITS for size in sizes)
        _check("hidden_sizes", sizes, ok, f"1 to {_MAX_HIDDEN_LAYERS} layer sizes, each 1 .. {_MAX_HIDDEN_UNITS}")
        fits = self.batch_size <= MAX_UPDATE_SAMPLES
        _check("num_envs", self.num_envs, fits, f"num_envs * num_steps <= {MAX_UPDATE_SAMPLES}")
        fits = self.batch_size * self.epochs <= MAX_UPDATE_VISITS
        _check("epochs", self.epochs, fits, f"num_envs * num_steps * epochs <= {MAX_UPDATE_VISITS}")
        _check(
            "minibatch_size",
            self.minibatch_size,
            self.minibatch_size <= self.batch_size,
            f"at most num_envs * num_steps = {self.batch_size}",
        )
        # As in SB3: an update of one sample in all has no deviation to normalise advantages by.
        _check("num_steps", self.num_steps, self.batch_size >= 2, "num_envs * num_steps >= 2")

    @classmethod
    def for_run(cls, values: Mapping[str, Any], *, base: Hyperparameters) -> Hyperparameters:
        """As `from_dict`, but a minibatch larger than the rollout is the whole rollout, as in Stable-Baselines3.

        Rollout and minibatch often come from two places, a preset and a person or a model: neither knows the other's.
        """
        whole = cls.from_dict({**values, "minibatch_size": 1}, base=base)
        told = cls.from_dict(
            {"minibatch_size": values.get("minibatch_size", base.minibatch_size)},
            base=replace(base, num_envs=MAX_UPDATE_SAMPLES, num_steps=1),
        )
        return replace(whole, minibatch_size=min(told.minibatch_size, whole.batch_size))

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values, the inverse of `from_dict`."""
        values = {item.name: getattr(self, item.name) for item in fields(self)}
        values["hidden_sizes"] = list(self.hidden_sizes)
        return values

    @classmethod
    def from_dict(cls, values: Mapping[str, Any], *, base: Hyperparameters | None = None) -> Hyperparameters:
        """Build and validate from plain values; what is missing comes from ``base`` (or the defaults).

        :raises InvalidArgument: for an unknown name or an impossible value.
        """
        known = {item.name for item in fields(cls)}
        for name in values:
            if name not in known:
                raise InvalidArgument(field=str(name), value=values[name], expected=f"one of {sorted(known)}")
        return replace(base or cls(), **{name: _plain(name, value) for name, value in values.items()}).validate()


def _plain(name: str, value: Any) -> Any:
    """Undo what JSON and protobuf do to values: lists for tuples, 64.0 for 64, 1 for 1.0."""
    if name == "hidden_sizes":
        if not isinstance(value, list | tuple):
            raise InvalidArgument(field=name, value=value, expected="a list of layer sizes")
        return tuple(_integral(size) for size in value)
    if name in ("num_envs", "num_steps", "minibatch_size", "epochs"):
        return _integral(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    return value


def _integral(value: Any) -> Any:
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _is_int(value: object, *, low: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= low


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _check(field: str, value: object, ok: bool, expected: str) -> None:
    if not ok:
        raise InvalidArgument(field=field, value=value, expected=expected)
