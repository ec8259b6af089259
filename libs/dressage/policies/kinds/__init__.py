"""Kinds of policy, one module each: ``mlp``, ``linear``, ``table``, ``random_features``
and ``projected_mlp``.

All are saved, loaded, exported and acted with as the same bundle; the card names the kind. A search method proposes a
vector of numbers::

    spec = PolicySpec.of("linear", environment_card)
    linear = kind(spec.kind)
    policy = Policy(weights=linear.weights(spec, vector), card=linear.card(spec, environment="CartPole-v1"))
"""

from __future__ import annotations

from dressage.errors import InvalidArgument
from dressage.policies.kinds.base import Kind
from dressage.policies.kinds.linear import Linear
from dressage.policies.kinds.mlp import Mlp
from dressage.policies.kinds.projected_mlp import ProjectedMlp
from dressage.policies.kinds.random_features import RandomFeatures
from dressage.policies.kinds.spec import PolicySpec
from dressage.policies.kinds.table import Table

__all__ = ["NAMES", "Kind", "PolicySpec", "kind"]

_KINDS: dict[str, Kind] = {entry.name: entry for entry in (Mlp(), Linear(), Table(), RandomFeatures(), ProjectedMlp())}
NAMES = tuple(_KINDS)


def kind(name: str) -> Kind:
    """Return the kind of a name.

    :raises InvalidArgument: for an unknown name, listing the known ones.
    """
    if name not in NAMES:
        raise InvalidArgument(field="kind", value=name, expected=f"one of {', '.join(NAMES)}")
    return _KINDS[name]
