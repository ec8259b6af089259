"""What the supervisor and the sandboxed search say to each other.

Supervisor → search: ``{"task": ..., "state": ... or None, "checkpoint_seconds": ...}`` first, then ``{"checkpoint": true}``
whenever a state is wanted. Search → supervisor: `Improved`, `Stored`, `Alive`, and at the end `Ended` or `Refused`.

The supervisor checks what it receives (`parse`), since later methods run generated code at the same place.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from dressage.sandbox.pipe import ProtocolError

from dressage_trainer.checks import MAX_PARAMETERS

_MAX_IMPROVEMENTS = 10_000
_MAX_TEXT = 2_000


@dataclass(frozen=True)
class Improved:
    """A better candidate was found."""

    evaluated: int
    score: float
    parameters: np.ndarray


@dataclass(frozen=True)
class Stored:
    """The state between two blocks of candidates.

    :param state: as `Search.state` gives it.
    :param requested: whether it answers a request.
    """

    state: dict[str, Any]
    evaluated: int
    env_steps: int
    requested: bool


@dataclass(frozen=True)
class Alive:
    """The search makes progress."""

    evaluated: int
    env_steps: int


@dataclass(frozen=True)
class Ended:
    """The search is over.

    :param improvements: number and score of each.
    """

    evaluated: int
    env_steps: int
    best_score: float
    best_parameters: np.ndarray
    improvements: tuple[tuple[int, float], ...]


@dataclass(frozen=True)
class Refused:
    """The search is impossible: another attempt would end alike."""

    reason: str
    message: str


SearchMessage = Improved | Stored | Alive | Ended | Refused
_KINDS: dict[str, type[Any]] = {kind.__name__: kind for kind in (Improved, Stored, Alive, Ended, Refused)}


def to_dict(message: SearchMessage) -> dict[str, Any]:
    """The dict that goes through the channel."""
    # Not by `asdict`, which copies arrays.
    return {"type": type(message).__name__, **{item.name: getattr(message, item.name) for item in fields(message)}}


def parse(message: Mapping[str, Any]) -> SearchMessage:
    """The typed message of a dict.

    :raises ProtocolError: for anything else than a well-formed message.
    """
    kind = _KINDS.get(str(message.get("type")))
    if kind is None:
        raise ProtocolError(f"the search sent a message of unknown type {str(message.get('type'))[:40]!r}")
    try:
        values = {item.name: _CHECKS[str(item.type)](message[item.name]) for item in fields(kind)}
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise ProtocolError(f"the search sent a malformed {kind.__name__}: {error!r}") from None
    result: SearchMessage = kind(**values)
    return result


def _vector(value: Any) -> np.ndarray:
    array = np.asarray(value, np.float64)
    if array.ndim != 1 or len(array) > MAX_PARAMETERS:
        raise ValueError(f"an array of shape {array.shape} is no vector of parameters")
    return array


def _pairs(value: Any) -> tuple[tuple[int, float], ...]:
    pairs = tuple((int(number), float(score)) for number, score in value)
    if len(pairs) > _MAX_IMPROVEMENTS:
        raise ValueError(f"{len(pairs)} improvements are too many")
    return pairs


_CHECKS: dict[str, Any] = {
    "int": int,
    "float": float,
    "bool": bool,
    "str": lambda value: str(value)[:_MAX_TEXT],
    "np.ndarray": _vector,
    "dict[str, Any]": dict,
    "tuple[tuple[int, float], ...]": _pairs,
}
