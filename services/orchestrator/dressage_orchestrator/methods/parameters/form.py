"""The form of a session's parameters: their number, the values that they may have, and how they are written as text. Pure."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from dressage.api.internal.v1 import agent_service_pb2 as agent_pb
from dressage.api.internal.v1 import run_service_pb2 as work
from dressage.api.v1 import session_pb2 as v1
from dressage.envs.cards import EnvironmentCard
from dressage.errors import InvalidArgument
from dressage.policies.kinds import PolicySpec, kind
from dressage.policies.sb3_baselines import BASELINES

from dressage_orchestrator.methods.parameters.variants import PROFILES

Values = tuple[float, ...]

RANGES = {"linear": 6.0, "random_features": 2.0, "projected_mlp": 6.0, "mlp": 6.0}
"""Largest absolute value of a parameter by kind of policy; a table has actions instead."""
SPREADS = {"linear": 3.0, "random_features": 0.75, "projected_mlp": 2.0, "mlp": 1.0}
"""Standard deviations of random candidates, those of the R2PO paper."""
_FEATURES = 8
_HIDDEN = (64, 64)
_TINY = 1e-9
_LARGEST = float(np.finfo(np.float32).max)


@dataclass(frozen=True)
class Form:
    """The form of the parameters.

    :param policy: the policy, as assignments name it.
    :param size: number of parameters.
    :param choices: number of values of each one, integers from 0; 0 for real numbers.
    :param range: largest absolute value of a real parameter; 0: no limit.
    :param enforced: whether the range is enforced.
    """

    policy: work.PolicySpec
    size: int
    choices: int
    range: float
    enforced: bool

    @classmethod
    def of(cls, spec: v1.SessionSpec, card: EnvironmentCard) -> Form:
        """Return the form of a filled spec.

        :raises InvalidArgument: naming the field of a policy that does not fit the environment.
        """
        settings = spec.parameters
        policy = policy_of(settings, continuous=not card.num_actions)
        try:
            shape = shape_of(policy, card)
            size, choices = kind(shape.kind).size(shape), kind(shape.kind).choices(shape)
        except InvalidArgument as error:
            field = f"spec.parameters.{'bias' if error.field == 'bias' else 'policy'}"
            raise InvalidArgument(f"{field}: {error.message}", field=field, expected=error.expected) from error
        limit = 0.0 if choices else settings.range
        return cls(policy, size, choices, limit, PROFILES[settings.profile].enforced)

    def message(self, *, digits: int) -> agent_pb.ParameterForm:
        """Return the form as prompts describe it."""
        return agent_pb.ParameterForm(
            kind=self.policy.kind,
            size=self.size,
            choices=self.choices,
            range=self.range,
            enforced=self.enforced or self.choices > 0,
            bias=self.policy.bias,
            digits=digits,
        )

    def check(self, values: Sequence[float], *, field: str) -> Values:
        """Return the values if a policy can have them.

        :raises InvalidArgument: naming the field, the first bad value and what is expected.
        """
        if len(values) != self.size:
            expected = f"{self.size} numbers, as many as the {self.policy.kind} policy has"
            raise InvalidArgument(field=field, value=f"{len(values)} numbers", expected=expected)
        for index, value in enumerate(values):
            if not self._allows(value):
                raise InvalidArgument(field=f"{field}[{index}]", value=value, expected=self._value_description())
        return tuple(float(value) for value in values)

    def _allows(self, value: float) -> bool:
        if not math.isfinite(value) or abs(value) > _LARGEST:
            return False
        if self.choices:
            return value == int(value) and 0 <= value < self.choices
        return not (self.enforced and self.range) or abs(value) <= self.range + _TINY

    def _value_description(self) -> str:
        if self.choices:
            return f"an action, an integer from 0 to {self.choices - 1}"
        if self.enforced and self.range:
            return f"a number from {-self.range:g} to {self.range:g}. The setting range changes that"
        return "a finite number"

    def parse(self, text: str, *, field: str) -> Values:
        """Return the values of a person's text, a JSON list of numbers.

        :raises InvalidArgument: naming the field.
        """
        expected = f"a JSON list of {self.size} numbers"
        try:
            values = json.loads(text)
        except ValueError as error:
            raise InvalidArgument(field=field, value=text, expected=expected) from error
        numbers = isinstance(values, list) and all(
            isinstance(entry, int | float) and not isinstance(entry, bool) for entry in values
        )
        if not numbers:
            raise InvalidArgument(field=field, value=text, expected=expected)
        return self.check(values, field=field)

    def random(self, count: int, *, seed: int) -> list[Values]:
        """Return random candidates as the R2PO paper draws them, clipped to an enforced range.

        :param seed: equal seeds give equal candidates.
        """
        rng = np.random.Generator(np.random.PCG64(seed))
        if self.choices:
            drawn = rng.integers(self.choices, size=(count, self.size)).astype(np.float64)
        else:
            drawn = rng.standard_normal((count, self.size)) * SPREADS[self.policy.kind]
            if self.policy.kind == "linear":
                drawn = drawn.round(1)
            if self.enforced and self.range:
                drawn = drawn.clip(-self.range, self.range)
        return [tuple(row.tolist()) for row in drawn]

    @property
    def spread(self) -> float:
        """Standard deviation of random candidates."""
        return SPREADS.get(self.policy.kind, 1.0)


def as_text(values: Sequence[float]) -> str:
    """Return values as the JSON list that people read and edit; integers without a decimal point."""
    return json.dumps([int(value) if value == int(value) else value for value in values])


def key_of(values: Sequence[float]) -> bytes:
    """Return the identity of a candidate: its values in single precision, as policies store them."""
    return np.asarray(values, np.float32).tobytes()


def policy_of(settings: v1.ParameterSpec, *, continuous: bool) -> work.PolicySpec:
    """Return the policy of filled settings.

    :param continuous: whether actions are continuous.
    """
    policy = work.PolicySpec(kind=settings.policy, bias=settings.bias)
    if settings.policy == "random_features":
        policy.features = _FEATURES
    if settings.policy in ("random_features", "projected_mlp"):
        policy.seed = settings.policy_seed
    if settings.search in BASELINES:
        baseline = BASELINES[settings.search]
        policy.hidden_sizes.extend(baseline.hidden)
        policy.activation, policy.squash = baseline.activation, baseline.squash and continuous
    elif settings.policy == "mlp":
        policy.hidden_sizes.extend(_HIDDEN)
    return policy


def shape_of(policy: work.PolicySpec, card: EnvironmentCard) -> PolicySpec:
    """Return the shape of a policy for an environment.

    :raises InvalidArgument: for a policy that does not fit.
    """
    sizes: dict[str, object] = {"bias": policy.bias, "seed": policy.seed}
    if policy.kind == "mlp":
        sizes["hidden"] = tuple(policy.hidden_sizes)
        sizes |= {"activation": policy.activation or "tanh", "squash": policy.squash}
    if policy.kind == "random_features":
        sizes["features"] = policy.features
    return PolicySpec.of(policy.kind, card, **sizes)  # type: ignore[arg-type]


SKIPPED = "skipped"
BOUNDED = "bounded"


def limits_revision(score: float, threshold: float | None) -> bool:
    """Whether the rule applies to a candidate with this mean return."""
    return threshold is not None and score >= threshold


def bound_revision(before: Values, after: Values, *, step_size: float, choices: int) -> Values:
    """Return the revision, changed as little as needed to be within the bound.

    Real parameters change by at most ``step_size`` each. Of a table, only the first changed entry changes.

    :param choices: number of values of each parameter; 0 for real numbers.
    """
    if choices:
        first = next((index for index, pair in enumerate(zip(before, after, strict=True)) if pair[0] != pair[1]), None)
        return tuple(after[index] if index == first else value for index, value in enumerate(before))
    start = np.asarray(before, np.float64)
    return tuple(np.clip(np.asarray(after, np.float64), start - step_size, start + step_size).tolist())
