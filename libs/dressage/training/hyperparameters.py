"""PPO's hyperparameters and the rules for their values.

The message ``Hyperparameters`` of ``protos/dressage/v1/session.proto`` states the values that each number may have, and the
fields here their defaults and the narrower range into which a language model's suggestion is clamped. `RULES` holds both by
name. The trainer checks what it is given with them, and the service limits suggestions. `check_sizes` is the one rule across
fields.

Members that differ in the `Hyperparameters.shape_key` differ in array shapes and train in separate groups; all other values
are numbers of one compiled update.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Self

from dressage.api.buf.validate import validate_pb2
from dressage.api.v1 import session_pb2
from dressage.errors import InvalidArgument

MAX_UPDATE_VISITS = 2**30
"""Upper bound of an update's samples over all its epochs, whose orders are drawn together."""
ShapeKey = tuple[Any, ...]


@dataclass(frozen=True)
class Rule:
    """The values that a number may have.

    :param low: the lowest value.
    :param high: the highest value.
    :param above: exclude ``low`` itself.
    :param whole: allow integers only.
    :param optional: allow None as well.
    :param recommended: lowest and highest value that a language model may choose; None: it may not change this one.
    """

    low: float
    high: float
    above: bool = False
    whole: bool = False
    optional: bool = False
    recommended: tuple[float, float] | None = None

    @property
    def expected(self) -> str:
        """The rule in words."""
        kind = "an integer" if self.whole else "a number"
        bounds = (
            f"above {self.low:g}, at most {self.high:g}" if self.above else f"from {self.low:g} to {self.high:.10g}"
        )
        return f"{kind} {bounds}{', or none' if self.optional else ''}"

    def allows(self, value: object) -> bool:
        """Return whether a value follows the rule; true and false are no numbers."""
        if value is None:
            return self.optional
        if isinstance(value, bool) or not isinstance(value, int if self.whole else int | float):
            return False
        return (self.low < value if self.above else self.low <= value) and value <= self.high


Range = tuple[float, float]


@functools.cache
def _field_rules(name: str) -> validate_pb2.FieldRules:
    """Return the rules of a field of the API's ``Hyperparameters``."""
    options = session_pb2.Hyperparameters.DESCRIPTOR.fields_by_name[name].GetOptions()
    rules: validate_pb2.FieldRules = options.Extensions[validate_pb2.field]
    return rules


def _rule(rules: validate_pb2.FieldRules, *, optional: bool = False, recommended: Range | None = None) -> Rule:
    kind = rules.WhichOneof("type")
    bounds: Any = getattr(rules, str(kind))
    above = bounds.HasField("gt")
    low = bounds.gt if above else bounds.gte
    return Rule(low, bounds.lte, above=above, whole=kind == "int32", optional=optional, recommended=recommended)


HIDDEN_SIZE = _rule(_field_rules("hidden_sizes").repeated.items, recommended=(16, 512))
"""The rule for each hidden layer's size."""
MAX_HIDDEN_LAYERS = _field_rules("hidden_sizes").repeated.max_items
MAX_UPDATE_SAMPLES = _field_rules("minibatch_size").int32.lte
"""Upper bound of a member's samples in one update, num_envs × num_steps; a minibatch may have them all."""
STEP_FACTORS = (0.5, 4.0)
"""Lowest and highest training length that a language model may choose, as factors of the session's."""
RECOMMENDED_HIDDEN_LAYERS = 3
"""Maximum number of hidden layers that a language model may choose."""


def number(default: float | None, recommended: Range | None = None, *, sb3: str = "") -> Any:
    """Declare a number.

    :param recommended: lowest and highest value that a language model may choose; None: it may not change this one.
    :param sb3: argument of Stable-Baselines3's ``PPO`` that has the same meaning; empty: none.
    """
    return dataclasses.field(default=default, metadata={"recommended": recommended, "sb3": sb3})


@dataclass(frozen=True)
class Hyperparameters:
    """What one member trains with; the defaults are Stable-Baselines3's, on 16 environments."""

    learning_rate: float = number(3e-4, (1e-6, 3e-3), sb3="learning_rate")
    """Step size of Adam."""
    num_envs: int = number(16)
    """Environments from which the member collects at once."""
    # A recommendation counts steps of many environments: 16 × 16 samples are as few as 256 × 1.
    num_steps: int = number(128, (16, 8192), sb3="n_steps")
    """Steps per environment between two updates; an update has num_envs × num_steps samples."""
    minibatch_size: int = number(64, (32, 8192), sb3="batch_size")
    """Samples per gradient step, at most num_envs × num_steps; a last, smaller minibatch is used as SB3 uses it.
    Advantages are normalised over a minibatch, except over one of a single sample, which has no deviation."""
    epochs: int = number(10, (3, 20), sb3="n_epochs")
    """Passes over the samples in an update."""
    discount: float = number(0.99, (0.95, 0.999), sb3="gamma")
    """Gamma."""
    gae_lambda: float = number(0.95, (0.8, 1.0), sb3="gae_lambda")
    """Lambda of generalised advantage estimation."""
    clip_range: float = number(0.2, (0.1, 0.4), sb3="clip_range")
    """Bound of the probability ratio's change."""
    entropy_coef: float = number(0.0, (1e-4, 0.1), sb3="ent_coef")
    """Weight of the entropy bonus."""
    value_coef: float = number(0.5, (0.1, 2.0), sb3="vf_coef")
    """Weight of the value loss."""
    max_grad_norm: float = number(0.5, (0.1, 5.0), sb3="max_grad_norm")
    """Bound of the gradient's norm over all weights."""
    target_kl: float | None = number(None, (0.001, 0.05), sb3="target_kl")
    """The update ends early once a minibatch's approximate KL exceeds 1.5 times this; None: never."""
    desired_kl: float = number(0.0)
    """Adapt the learning rate until an update changes the policy by about this mean approximate KL divergence, as RSL-RL's
    schedule ``adaptive`` does (Rudin et al., 2022); 0: keep the learning rate."""
    initial_log_std: float = number(0.0)
    """Logarithm of the policy's standard deviation before training."""
    observation_inputs: int = number(0)
    """Number of leading components of the observation that the networks see; 0: all."""
    hidden_sizes: tuple[int, ...] = (64, 64)
    """Units of each hidden layer of the policy and of the value network, 1 to 8 layers."""
    normalize_observation: bool = True
    """Normalise observations by their running mean and variance."""
    normalize_reward: bool = True
    """Divide rewards by the running standard deviation of the discounted return."""
    observation_clip: float = number(10.0, (1.0, 100.0))
    """Bound of normalised observations; without normalisation nothing is clipped."""
    reward_clip: float = number(10.0, (1.0, 100.0))
    """Bound of normalised rewards; without normalisation nothing is clipped."""

    @property
    def batch_size(self) -> int:
        """Samples of one update."""
        return self.num_envs * self.num_steps

    def inputs(self, observation_size: int) -> int:
        """Return how many components of an observation the networks see.

        :raises InvalidArgument: for more than the observation has.
        """
        fits = self.observation_inputs <= observation_size
        _check("observation_inputs", self.observation_inputs, fits, f"at most {observation_size}, or 0 for all")
        return self.observation_inputs or observation_size

    @property
    def shape_key(self) -> ShapeKey:
        """Members with equal keys share one compiled update. The number of epochs is not part of it."""
        return (
            self.num_envs,
            self.num_steps,
            self.minibatch_size,
            self.observation_inputs,
            self.hidden_sizes,
            self.normalize_observation,
            self.normalize_reward,
        )

    def validate(self) -> Self:
        """Return self if all values follow the rules.

        :raises InvalidArgument: naming the first field that does not.
        """
        for name, rule in rules_of(type(self)).items():
            _check(name, getattr(self, name), rule.allows(getattr(self, name)), rule.expected)
        for name in (item.name for item in fields(self) if isinstance(item.default, bool)):
            _check(name, getattr(self, name), isinstance(getattr(self, name), bool), "true or false")
        sizes = self.hidden_sizes
        fits = isinstance(sizes, tuple) and 1 <= len(sizes) <= MAX_HIDDEN_LAYERS and all(map(HIDDEN_SIZE.allows, sizes))
        expected = f"1 to {MAX_HIDDEN_LAYERS} layer sizes, each {HIDDEN_SIZE.expected}"
        _check("hidden_sizes", sizes, fits, expected)
        self._check_sizes()
        return self

    def _check_sizes(self) -> None:
        """Refuse sizes that are legal one by one and contradict each other."""
        check_sizes(vars(self))

    @classmethod
    def for_run(cls, values: Mapping[str, Any], *, base: Hyperparameters) -> Hyperparameters:
        """Build as `from_dict`, but let a minibatch larger than the rollout be the whole rollout, as in Stable-Baselines3.

        Rollout and minibatch often come from two places, a preset and a person or a model, neither of which has both.
        """
        whole = cls.from_dict({**values, "minibatch_size": 1}, base=base)
        size = minibatch_size(values, base=base)
        return replace(whole, minibatch_size=min(size, whole.batch_size))

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values, the inverse of `from_dict`."""
        values = {item.name: getattr(self, item.name) for item in fields(self)}
        values["hidden_sizes"] = list(self.hidden_sizes)
        return values

    @classmethod
    def from_dict(cls, values: Mapping[str, Any], *, base: Self | None = None) -> Self:
        """Build and validate from plain values; what is missing comes from ``base`` (or the defaults).

        :raises InvalidArgument: for an unknown name or an impossible value.
        """
        names = {item.name for item in fields(cls)}
        for name in values:
            if name not in names:
                raise InvalidArgument(field=str(name), value=values[name], expected=f"one of {sorted(names)}")
        rules = rules_of(cls)
        return replace(base or cls(), **{name: _plain(name, value, rules) for name, value in values.items()}).validate()


def rules_of(kind: type[Hyperparameters]) -> Mapping[str, Rule]:
    """Return the rule of each hyperparameter that is a number, by name."""
    return {
        item.name: _rule(
            _field_rules(item.name), optional=item.default is None, recommended=item.metadata["recommended"]
        )
        for item in fields(kind)
        if item.metadata
    }


SB3_NAMES = {item.name: item.metadata["sb3"] for item in fields(Hyperparameters) if item.metadata.get("sb3")}
"""Arguments of Stable-Baselines3's ``PPO``, by the hyperparameter of the same meaning."""

RULES = rules_of(Hyperparameters)
"""The rule of each of PPO's hyperparameters that is a number, by name."""


def check_sizes(sizes: Mapping[str, Any]) -> None:
    """Refuse sizes that are legal one by one and of which no update can be made.

    Only given values are compared: with any preset's value for the other, neither ``num_envs`` nor ``num_steps`` is too much.

    :param sizes: legal values by name.
    :raises InvalidArgument: naming the field.
    """
    if "num_envs" not in sizes or "num_steps" not in sizes:
        return
    envs, steps, epochs, minibatch = (
        sizes.get(name, 1) for name in ("num_envs", "num_steps", "epochs", "minibatch_size")
    )
    samples = envs * steps
    expected = (
        f"at most {MAX_UPDATE_SAMPLES // envs} with num_envs of {envs} (num_envs × num_steps ≤ {MAX_UPDATE_SAMPLES})"
    )
    _check("num_steps", steps, samples <= MAX_UPDATE_SAMPLES, expected)
    # As in SB3: an update of one sample in all has no deviation by which to normalise advantages.
    _check("num_steps", steps, samples >= 2, "at least 2 with num_envs of 1 (num_envs × num_steps ≥ 2)")
    expected = f"at most {MAX_UPDATE_VISITS // samples} with {samples} samples "
    expected += f"(num_envs × num_steps × epochs ≤ {MAX_UPDATE_VISITS})"
    _check("epochs", epochs, samples * epochs <= MAX_UPDATE_VISITS, expected)
    _check("minibatch_size", minibatch, minibatch <= samples, f"at most {samples} (num_envs × num_steps)")


def minibatch_size(values: Mapping[str, Any], *, base: Hyperparameters) -> int:
    """Return the size of a minibatch from plain values or ``base``, whatever the size of the rollout.

    :raises InvalidArgument: for an impossible value.
    """
    size: int = _plain("minibatch_size", values.get("minibatch_size", base.minibatch_size), RULES)
    _check("minibatch_size", size, RULES["minibatch_size"].allows(size), RULES["minibatch_size"].expected)
    return size


def _plain(name: str, value: Any, rules: Mapping[str, Rule]) -> Any:
    """Undo what JSON and protobuf do to values: lists for tuples, 64.0 for 64, 1 for 1.0."""
    if name == "hidden_sizes":
        if not isinstance(value, list | tuple):
            raise InvalidArgument(field=name, value=value, expected="a list of layer sizes")
        return tuple(_integral(size) for size in value)
    if name in rules and rules[name].whole:
        return _integral(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    return value


def _integral(value: Any) -> Any:
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _check(field: str, value: object, fits: bool, expected: str) -> None:
    if not fits:
        raise InvalidArgument(field=field, value=value, expected=expected)
