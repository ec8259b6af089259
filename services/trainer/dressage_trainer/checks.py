"""Checks of what several kinds of assignment have: an environment, the shape of a small policy, counts and seeds.

Whatever is wrong is an `InvalidArgument` whose message names the field, the value and what would be right.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dressage.api.internal.v1 import run_service_pb2 as pb
from dressage.api.v1 import session_pb2
from dressage.envs import custom
from dressage.envs.cards import EnvironmentCard
from dressage.envs.options import EnvOptions
from dressage.errors import InvalidArgument, NotFound
from dressage.policies.card import OPTIONAL_BIAS
from dressage.policies.kinds import PolicySpec, kind
from dressage.policies.kinds.spec import FEATURES, HIDDEN

from dressage_trainer.specs import options_of

MAX_PARAMETERS = 100_000
"""Numbers of one small policy, at most: they travel in reports."""
_MAX_INTEGER = 2**63 - 1


@dataclass(frozen=True)
class Task:
    """The environment of an assignment."""

    card: EnvironmentCard
    options: dict[str, Any]
    """Options that are set, by name."""

    @property
    def longest_episode(self) -> int:
        """Steps after which an episode is over at the latest."""
        return int(self.options.get("max_episode_steps", self.card.max_episode_steps))


def task_of(environment: str, options: session_pb2.EnvironmentOptions) -> Task:
    """The environment with its options.

    :raises InvalidArgument: for an unknown environment, or an option that it does not have.
    """
    values = options_of(options)
    try:
        return Task(EnvOptions.from_dict(values).check(environment), values)
    except NotFound as error:
        raise InvalidArgument(f"environment: {error.message}", field="environment", reason=error.reason) from error


def policy_of(policy: pb.PolicySpec, card: EnvironmentCard) -> PolicySpec:
    """The shape of a small policy for an environment.

    :raises InvalidArgument: for a shape that is none, or has too many parameters.
    """
    if policy.kind == "table" and not card.id.startswith(custom.GYMNASIUM):
        expected = f"linear, mlp or random_features for {card.id}: a table needs discrete observations"
        raise InvalidArgument(field="policy.kind", value=policy.kind, expected=expected)
    try:
        spec = PolicySpec.of(
            policy.kind,
            card,
            bias=policy.bias or policy.kind not in OPTIONAL_BIAS,
            hidden=tuple(policy.hidden_sizes) or HIDDEN,
            features=policy.features or FEATURES,
            seed=policy.seed,
        )
        size = kind(spec.kind).size(spec)
    except InvalidArgument as error:
        raise InvalidArgument(f"policy.{error.message}", field=f"policy.{error.field}") from error
    if size > MAX_PARAMETERS:
        expected = f"a policy of at most {MAX_PARAMETERS} parameters; choose smaller layers or fewer features"
        raise InvalidArgument(field="policy", value=size, expected=expected)
    return spec


def check_count(name: str, value: int, *, least: int = 1, most: int = _MAX_INTEGER) -> int:
    """The number, if it lies between these.

    :raises InvalidArgument: otherwise.
    """
    if not least <= value <= most:
        expected = f"an integer of at least {least}" if most == _MAX_INTEGER else f"an integer from {least} to {most}"
        raise InvalidArgument(field=name, value=value, expected=expected)
    return value
