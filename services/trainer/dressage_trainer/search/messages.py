"""What the supervisor and the sandboxed search exchange.

Supervisor → search: ``{"task": ..., "state": ... or None, "checkpoint_seconds": ...}`` first, then ``{"checkpoint": true}``
to request a state. Search → supervisor: `ImprovementMessage`, `StateMessage`, `ProgressMessage`, and at the end `EndMessage` or
`RefusalMessage`; a search over programs sends `ProgramImprovementMessage` and `ProgramEndMessage` instead.

The supervisor checks what it receives (`parse`), since later methods run generated code in the same place.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, get_args

import numpy as np
from dressage.policies.kinds import PolicySpec
from dressage.policies.sb3_baselines import BASELINES
from dressage.programs.syntax import MAX_CHARACTERS
from dressage.sandbox.output import excerpt
from dressage.sandbox.pipe import MALFORMED, ProtocolError

Source = str
"""Text of a program."""
MAX_PARAMETERS = 200_000
"""Numbers of one small policy, at most: they travel in reports. DDPG's and TD3's networks have about 125,000."""
MAX_IMPROVEMENTS = 10_000
PROGRAM_ALGORITHMS = {
    "scheduled_hill_climb": "scheduled-hc",
    "hill_climb": "hc",
    "cebs": "cebs",
    "latent_cem": "latent-cem",
    "latent_cebs": "latent-cebs",
    "random": "random",
}
"""Searches over programs, by their name in `dressage.programs.search`."""
_MAX_TEXT = 2_000
_MAX_COUNT = (1 << 63) - 1


@dataclass(frozen=True)
class SearchTask:
    """A search.

    :param policy: shape of the policy.
    :param budget: candidates that may be evaluated.
    :param episodes: episodes of each, with seeds from ``episode_seed`` on.
    :param target: score at which the search ends early; None: it uses its budget.
    :param scale: standard deviation of the first candidates.
    :param range: largest absolute value of a parameter; 0: no limit.
    :param step_size: standard deviation of mutations; 0: ``scale``.
    """

    environment: str
    options: Mapping[str, Any]
    algorithm: str
    policy: PolicySpec
    budget: int
    episodes: int
    seed: int
    episode_seed: int
    target: float | None
    scale: float
    threads: int
    range: float = 0.0
    step_size: float = 0.0

    @property
    def seeds(self) -> tuple[int, ...]:
        """Seeds of the episodes."""
        return tuple(range(self.episode_seed, self.episode_seed + self.episodes))

    @property
    def episodes_each(self) -> int:
        """Episodes that one evaluated candidate costs: a baseline also plays one to train."""
        return self.episodes + (self.algorithm in BASELINES)

    def identity(self) -> dict[str, Any]:
        """Return what the result depends on, as JSON values: a state belongs to one search only."""
        values = self.to_dict()
        del values["threads"]
        return values

    def to_dict(self) -> dict[str, Any]:
        """Return the task as JSON values."""
        return {**asdict(self), "options": dict(self.options), "policy": self.policy.to_dict()}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> SearchTask:
        """Return the task of such values; the inverse of `to_dict`."""
        return cls(**{**values, "policy": PolicySpec.from_dict(values["policy"])})


@dataclass(frozen=True)
class ProgramSearchTask:
    """A search over programs.

    :param algorithm: ``scheduled_hill_climb``, ``hill_climb``, ``cebs``, ``latent_cem``, ``latent_cebs`` or ``random``.
    :param programs: programs to climb from; none: random programs.
    :param states: numbers of the initial states.
    :param target: score at which the search ends early; None: it uses its budget.
    :param neighbours: neighbours of a climb of ``hill_climb``.
    :param schedule: fields of `dressage.programs.search.settings.Schedule`.
    :param code: name and version of a registered language; empty for one of Dressage. A state belongs to one version.
    """

    environment: str
    profile: str
    algorithm: str
    programs: tuple[str, ...]
    states: tuple[int, ...]
    budget: int
    seed: int
    target: float | None
    neighbours: int
    schedule: Mapping[str, Any]
    threads: int
    code: str = ""

    def identity(self) -> dict[str, Any]:
        """Return what the result depends on, as JSON values: a state belongs to one search only."""
        values = self.to_dict()
        del values["threads"]
        return values

    def to_dict(self) -> dict[str, Any]:
        """Return the task as JSON values."""
        values = {**asdict(self), "schedule": dict(self.schedule)}
        return {**values, "programs": list(self.programs), "states": list(self.states)}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> ProgramSearchTask:
        """Return the task of such values; the inverse of `to_dict`."""
        return cls(**{**values, "programs": tuple(values["programs"]), "states": tuple(values["states"])})


@dataclass(frozen=True)
class ImprovementMessage:
    """A candidate that is better than all before it."""

    evaluated: int
    score: float
    parameters: np.ndarray


@dataclass(frozen=True)
class ProgramImprovementMessage:
    """A program that is better than all before it."""

    evaluated: int
    score: float
    program: Source


@dataclass(frozen=True)
class StateMessage:
    """The state between two blocks of candidates.

    :param state: as `Search.state` gives it.
    :param requested: whether it answers a request.
    """

    state: dict[str, Any]
    evaluated: int
    env_steps: int
    requested: bool


@dataclass(frozen=True)
class ProgressMessage:
    """The search makes progress."""

    evaluated: int
    env_steps: int


@dataclass(frozen=True)
class EndMessage:
    """The search is over.

    :param improvements: number and score of each.
    """

    evaluated: int
    env_steps: int
    best_score: float
    best_parameters: np.ndarray
    improvements: tuple[tuple[int, float], ...]


@dataclass(frozen=True)
class ProgramEndMessage:
    """The search over programs is over.

    :param episodes: played by the engine, those that it gave up included.
    :param improvements: number and score of each.
    """

    evaluated: int
    episodes: int
    cache_hits: int
    best_score: float
    best_program: Source
    improvements: tuple[tuple[int, float], ...]


@dataclass(frozen=True)
class RefusalMessage:
    """The search is impossible; another attempt would end in the same way."""

    reason: str
    message: str


SearchMessage = (
    ImprovementMessage
    | ProgramImprovementMessage
    | StateMessage
    | ProgressMessage
    | EndMessage
    | ProgramEndMessage
    | RefusalMessage
)
_KINDS: dict[str, type[Any]] = {kind.__name__: kind for kind in get_args(SearchMessage)}


def to_dict(message: SearchMessage) -> dict[str, Any]:
    """Return the dict that goes through the channel."""
    # Not `asdict`, which copies arrays.
    return {"type": type(message).__name__, **{item.name: getattr(message, item.name) for item in fields(message)}}


def parse(message: Mapping[str, Any]) -> SearchMessage:
    """Return the typed message of a dict.

    :raises ProtocolError: for anything but a well-formed message.
    """
    kind = _KINDS.get(excerpt(message.get("type"), 40))
    if kind is None:
        raise ProtocolError(f"the search sent a message of unknown type {excerpt(message.get('type'), 40)!r}")
    try:
        values = {item.name: _CHECKS[str(item.type)](message[item.name]) for item in fields(kind)}
    except MALFORMED as error:
        raise ProtocolError(f"the search sent a malformed {kind.__name__}: {error!r}") from None
    result: SearchMessage = kind(**values)
    return result


def _vector(value: Any) -> np.ndarray:
    array = np.asarray(value, np.float64)
    if array.ndim != 1 or len(array) > MAX_PARAMETERS:
        raise ValueError(f"an array of shape {array.shape} is no vector of parameters")
    return array


def _pairs(value: Any) -> tuple[tuple[int, float], ...]:
    if len(value) > MAX_IMPROVEMENTS:
        raise ValueError(f"{len(value)} improvements are too many")
    return tuple((_count(number), _score(score)) for number, score in value)


def _count(value: Any) -> int:
    number = int(value)
    if not 0 <= number <= _MAX_COUNT:
        raise ValueError("a count out of range")
    return number


def _score(value: Any) -> float:
    number = float(value)
    if number != number:
        raise ValueError("a score that is no number")
    return number


def _program(value: Any) -> str:
    if not isinstance(value, str) or len(value) > MAX_CHARACTERS or excerpt(value, MAX_CHARACTERS) != value:
        raise ValueError("a program is a printable text of limited length")
    return value


_CHECKS: dict[str, Any] = {
    "int": _count,
    "float": _score,
    "bool": bool,
    "str": lambda value: excerpt(value, _MAX_TEXT),
    "Source": _program,
    "np.ndarray": _vector,
    "dict[str, Any]": dict,
    "tuple[tuple[int, float], ...]": _pairs,
}
