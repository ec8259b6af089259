"""What a session proposes: one module for each method, behind `Method`."""

from __future__ import annotations

from dressage.api.v1 import session_pb2 as v1
from dressage.errors import InvalidArgument

from dressage_orchestrator.methods.protocol import Estimate, Method
from dressage_orchestrator.methods.reward import RewardMethod

_METHODS: dict[int, Method] = {v1.METHOD_REWARD: RewardMethod()}


def method_of(spec: v1.SessionSpec) -> Method:
    """The method that a filled spec asks for.

    :raises InvalidArgument: when it is not available.
    """
    if spec.method not in _METHODS:
        available = ", ".join(v1.Method.Name(number) for number in sorted(_METHODS))  # type: ignore[arg-type]
        message = f"not available yet: {v1.Method.Name(spec.method)}; available: {available}"
        raise InvalidArgument(message, field="spec.method", reason="METHOD_NOT_AVAILABLE")
    return _METHODS[spec.method]


__all__ = ["Estimate", "Method", "method_of"]
