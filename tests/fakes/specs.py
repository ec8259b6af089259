"""Specs of sessions, written flat."""

from __future__ import annotations

from typing import Any

from dressage.api.v1 import session_pb2 as v1

_REWARD = v1.RewardSpec.DESCRIPTOR.fields_by_name


def reward_session(**fields: Any) -> v1.SessionSpec:
    """The spec of a session of the method `reward`; fields of `RewardSpec` among those given stand in it."""
    reward = {name: fields.pop(name) for name in [*fields] if name in _REWARD}
    return v1.SessionSpec(**fields, reward=v1.RewardSpec(**reward))
