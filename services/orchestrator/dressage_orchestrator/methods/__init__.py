"""What a session proposes: one module for each method, behind `Method`."""

from __future__ import annotations

from dressage.api.v1 import session_pb2 as v1
from dressage.errors import InvalidArgument

from dressage_orchestrator.defaults import method_name
from dressage_orchestrator.methods.protocol import Estimate, Method
from dressage_orchestrator.methods.reward import RewardMethod

_METHODS: dict[str, Method] = {"reward": RewardMethod()}


def method_of(spec: v1.SessionSpec) -> Method:
    """The method that a filled spec asks for.

    :raises InvalidArgument: when it is not available.
    """
    name = method_name(spec)
    if name not in _METHODS:
        message = f"spec.method_spec: method not available (got {name}); expected {' or '.join(sorted(_METHODS))}"
        raise InvalidArgument(message, field="spec.method_spec", reason="METHOD_NOT_AVAILABLE")
    return _METHODS[name]


__all__ = ["Estimate", "Method", "method_of"]
