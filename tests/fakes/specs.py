"""Specs of sessions, written flat."""

from __future__ import annotations

from typing import Any

from dressage.api.v1 import session_pb2 as v1
from dressage_orchestrator.lifecycle.registry import Methods
from dressage_orchestrator.service import with_defaults

_REWARD = v1.RewardSpec.DESCRIPTOR.fields_by_name


def reward_session(**fields: Any) -> v1.SessionSpec:
    """The spec of a session of the method `reward`; fields of `RewardSpec` among those given stand in it."""
    reward = {name: fields.pop(name) for name in [*fields] if name in _REWARD}
    return v1.SessionSpec(**fields, reward=v1.RewardSpec(**reward))


def filled_session(spec: v1.SessionSpec) -> v1.SessionSpec:
    """The spec with its method's and the server's defaults."""
    return with_defaults(spec, Methods.load().of(spec), default_model="template/v1", default_pool="local")
