"""The messages between the supervisor and its sandboxed processes; every message is a dict with a ``type``.

Supervisor → learner: `TrainSpec` first, then any number of ``{"type": "snapshot"}`` and `ExtendMessage`.
Learner → supervisor: `ProgressMessage`, `EvaluateMessage`, `CheckpointMessage`, `WarningMessage`, `MemberStoppedMessage`,
and at the end `DoneMessage` or `FailedMessage`.
Supervisor → evaluator: `EvaluateRequest`; evaluator → supervisor: `EvaluateReply`, one for each.

The supervisor trusts no message: `parse` checks types and sizes of what a sandboxed process sent.
"""

from __future__ import annotations

import errno
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, ClassVar

import numpy as np
from dressage.sandbox.output import excerpt
from dressage.sandbox.pipe import MALFORMED, ProtocolError
from numpy.typing import NDArray

Array = NDArray[Any]
Weights = Mapping[str, Array]
NO_ROOM = frozenset({errno.ENOSPC, errno.EFBIG, errno.EDQUOT})
"""Error numbers for a file that does not fit on the disk."""


@dataclass(frozen=True)
class Message:
    """Base of all messages."""

    type: ClassVar[str] = ""

    def to_dict(self) -> dict[str, Any]:
        """Return the dict that goes through the channel."""
        return {"type": self.type, **{item.name: _plain(getattr(self, item.name)) for item in fields(self)}}


@dataclass(frozen=True)
class MemberStart:
    """A policy from which a member's training continues."""

    weights: dict[str, Array]
    """Tensors by bundle name, observation statistics included."""
    statistics: dict[str, float]
    """The card's: counts, and moments of the discounted return."""
    keeps_value: bool = False
    """Whether the value network and the return statistics continue too."""
    provenance: dict[str, Any] = field(default_factory=dict)
    """Goes into the card of the member's policies."""


@dataclass(frozen=True)
class MemberTask:
    """One member to train."""

    member: str
    """Id of the member; also the name of its folder, ``members/{member}``."""
    hyperparameters: dict[str, Any]
    """Fields of `training.Hyperparameters` that differ from the environment's preset."""
    seed: int
    start: MemberStart | None = None
    """None: random weights."""


@dataclass(frozen=True)
class TrainSpec(Message):
    """The learner's task."""

    type: ClassVar[str] = "train"
    environment: str = ""
    options: dict[str, Any] = field(default_factory=dict)
    """Fields of `EnvOptions` that are set."""
    reward_source: str = ""
    members: tuple[MemberTask, ...] = ()
    steps_per_member: int = 0
    """Expected environment steps for each member."""
    max_steps: int = 0
    """Environment steps for each member; training ends with the first update that reaches them. 0: those expected."""
    granted_steps: int = 0
    """Environment steps at which the learner waits for an `ExtendMessage`; 0: it does not."""
    evaluations: int = 4
    """Evaluations in the expected steps, spread evenly, each at the first update boundary that reaches its mark. Beyond them
    the distances are the same. The last one is at the end and belongs to `DoneMessage`."""
    checkpoint_seconds: float = 30.0
    """Seconds between two checkpoints; 0: one at every update."""
    threads: int = 1
    backend: str = "jax"
    """``jax``, or ``sb3`` (Stable-Baselines3)."""
    algorithm: str = ""
    """``ppo`` (also if empty), or ``sac``."""
    on_device: bool = False
    """Whether the environments run on a device, see `ppo.device_collection`; for PPO of the backend ``jax``."""
    provenance: dict[str, str] = field(default_factory=dict)
    """Goes into every policy's card."""
    resume: str | None = None
    """Checkpoint to resume from, a path relative to the scratch folder; ``members/*/metrics.jsonl`` begin with its rows."""
    resume_earlier: tuple[str, ...] = ()
    """Earlier checkpoints, the newest first, in case that one is damaged."""
    memory_bytes: int = 0
    """Memory that the learner may use; 0: unknown."""
    checkpoint_bytes: int = 0
    """Size that a checkpoint's file may have; 0: unknown."""

    @property
    def last_step(self) -> int:
        """Environment steps for each member at which training ends."""
        return max(self.max_steps, self.steps_per_member)


@dataclass(frozen=True)
class ExtendMessage(Message):
    """The learner may continue."""

    type: ClassVar[str] = "extend"
    steps: int = 0
    """Environment steps for each member until which it may."""


@dataclass(frozen=True)
class MemberState:
    """Progress of one member."""

    member: str
    env_step: int
    metrics: dict[str, float]
    """Finite numbers only."""


@dataclass(frozen=True)
class MemberPolicy:
    """A policy at one moment: what `dressage.policies.save_bundle` needs."""

    member: str
    env_step: int
    """Steps of this member so far; groups of different shape do not end at the same step."""
    card: dict[str, Any]
    """`PolicyCard.to_dict()`."""
    weights: dict[str, Array]
    """Tensors by bundle name."""


@dataclass(frozen=True)
class ProgressMessage(Message):
    """Live progress; about two messages a second at most."""

    type: ClassVar[str] = "progress"
    activity: str = "training"
    """``compiling``, ``training``, or ``waiting`` for judgments."""
    steps_per_second: float = 0.0
    """Over all members, since the last message."""
    members: tuple[MemberState, ...] = ()


@dataclass(frozen=True)
class EvaluateMessage(Message):
    """The policies at an evaluation mark; training continues meanwhile."""

    type: ClassVar[str] = "evaluate"
    policies: tuple[MemberPolicy, ...] = ()


@dataclass(frozen=True)
class CheckpointMessage(Message):
    """A complete checkpoint is in the scratch folder."""

    type: ClassVar[str] = "checkpoint"
    path: str = ""
    """Relative to the scratch folder."""
    update: int = 0
    env_step: int = 0
    requested: bool = False
    """Whether it answers a ``snapshot``."""


@dataclass(frozen=True)
class WarningMessage(Message):
    """A computed warning: ``REWARD_TERM_DOMINATES``, ``ENTROPY_COLLAPSE``, ``SIMULATION_DIVERGED``, …."""

    type: ClassVar[str] = "warning"
    reason: str = ""
    message: str = ""
    member: str = ""


@dataclass(frozen=True)
class MemberStoppedMessage(Message):
    """One member cannot continue (for example after a non-finite gradient); the others do."""

    type: ClassVar[str] = "member_stopped"
    member: str = ""
    env_step: int = 0
    reason: str = ""
    message: str = ""


@dataclass(frozen=True)
class DoneMessage(Message):
    """Training is complete; the process ends after it."""

    type: ClassVar[str] = "done"
    env_steps_total: int = 0
    """Over all members, by this process."""
    policies: tuple[MemberPolicy, ...] = ()


@dataclass(frozen=True)
class FailedMessage(Message):
    """No member can continue; the process ends after it."""

    type: ClassVar[str] = "failed"
    reason: str = ""
    """``REWARD_ERROR``, ``REWARD_NOT_TRACEABLE``, ``CHECKPOINT_CORRUPT``, ``OUT_OF_DISK``, …."""
    message: str = ""
    generated_code: bool = False
    """Whether the generated code is to blame; then there is no other attempt."""


@dataclass(frozen=True)
class EvaluateRequest(Message):
    """Play deterministic episodes on stock Gymnasium."""

    type: ClassVar[str] = "evaluate"
    environment: str = ""
    options: dict[str, Any] = field(default_factory=dict)
    card: dict[str, Any] = field(default_factory=dict)
    weights: dict[str, Array] = field(default_factory=dict)
    seeds: tuple[int, ...] = ()
    folder: str = ""
    """Folder for ``{seed}.npz``, relative to the scratch folder."""


@dataclass(frozen=True)
class EvaluateReply(Message):
    """Paths of the next trajectories, relative to the scratch folder, in the order of the seeds; more replies follow."""

    type: ClassVar[str] = "evaluated"
    paths: tuple[str, ...] = ()
    error: int = 0
    """The number of the system's error if one could not be written; no more replies follow."""


LearnerMessage = (
    ProgressMessage
    | EvaluateMessage
    | CheckpointMessage
    | WarningMessage
    | MemberStoppedMessage
    | DoneMessage
    | FailedMessage
)
_FROM_LEARNER: dict[str, type[Any]] = {
    kind.type: kind
    for kind in (
        ProgressMessage,
        EvaluateMessage,
        CheckpointMessage,
        WarningMessage,
        MemberStoppedMessage,
        DoneMessage,
        FailedMessage,
    )
}
# The learner shares its process with the reward, so its messages are as hostile as the code (decision 0052).
_MAX_TEXT = 4000
_MAX_NAME = 100
_MAX_METRICS = 256
"""Metrics of a member in one message; a backend has some forty and one for each term of the reward."""
_MAX_MEMBERS = 1000
_MAX_TENSORS = 256
# A larger number would fail in a report, as a fault of the machine that is repeated (decision 0052).
_MAX_COUNT = (1 << 63) - 1


def parse(message: Mapping[str, Any]) -> LearnerMessage:
    """Return the typed message of a learner's dict.

    :raises ProtocolError: for anything but a well-formed message within the bounds of counts and sizes.
    """
    kind = _FROM_LEARNER.get(excerpt(message.get("type"), _MAX_NAME))
    if kind is None:
        raise ProtocolError(f"the learner sent a message of unknown type {excerpt(message.get('type'), 40)!r}")
    values = {}
    for item in fields(kind):
        if item.name in message:
            values[item.name] = _parse_field(item.name, item.type, message[item.name])
    result: LearnerMessage = kind(**values)
    return result


def members_of(message: LearnerMessage) -> set[str]:
    """Return the ids of the members that a message is about."""
    match message:
        case ProgressMessage(members=states):
            return {state.member for state in states}
        case EvaluateMessage(policies=policies) | DoneMessage(policies=policies):
            return {policy.member for policy in policies}
        case MemberStoppedMessage(member=member):
            return {member}
        case WarningMessage(member=member):
            return {member} - {""}
        case _:
            return set()


def _parse_field(name: str, annotation: Any, value: Any) -> Any:
    """Return ``value`` as the field's type, or raise `ProtocolError`."""
    kind = str(annotation)
    try:
        if kind == "int":
            return _count(value)
        if kind == "float":
            return _finite(value)
        if kind == "bool":
            return bool(value)
        if kind == "str":
            return _text(value, _MAX_TEXT)
        if "MemberState" in kind:
            return tuple(_member_state(entry) for entry in _at_most(value, _MAX_MEMBERS))
        if "MemberPolicy" in kind:
            return tuple(_member_policy(entry) for entry in _at_most(value, _MAX_MEMBERS))
    except MALFORMED as error:
        raise ProtocolError(f"the learner sent a malformed {name}: {error}") from None
    raise ProtocolError(f"the learner sent an unexpected {name}")


def _member_state(entry: Any) -> MemberState:
    metrics = {_text(key, _MAX_NAME): float(value) for key, value in _at_most(entry["metrics"], _MAX_METRICS).items()}
    finite = {key: value for key, value in metrics.items() if np.isfinite(value)}
    return MemberState(member=_text(entry["member"], _MAX_NAME), env_step=_count(entry["env_step"]), metrics=finite)


def _member_policy(entry: Any) -> MemberPolicy:
    weights = {str(name): np.asarray(array) for name, array in _at_most(entry["weights"], _MAX_TENSORS).items()}
    return MemberPolicy(_text(entry["member"], _MAX_NAME), _count(entry["env_step"]), dict(entry["card"]), weights)


def _at_most(values: Any, most: int) -> Any:
    if len(values) > most:
        raise ValueError(f"{len(values)} entries; at most {most} are allowed")
    return values


def _text(value: Any, most: int) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{type(value).__name__} instead of a text")
    return excerpt(value, most)


def _count(value: Any) -> int:
    number = int(value)
    if not 0 <= number <= _MAX_COUNT:
        raise ValueError(f"a count out of range ({str(value)[:40]})")
    return number


def _finite(value: Any) -> float:
    number = float(value)
    if not np.isfinite(number):
        raise ValueError(f"a number that is not finite ({number})")
    return number


def _plain(value: Any) -> Any:
    """Return dataclasses as dicts, and arrays unchanged."""
    if isinstance(value, tuple):
        return [_plain(entry) for entry in value]
    if isinstance(value, MemberPolicy):
        # Not `asdict`, which would copy the arrays.
        return {item.name: getattr(value, item.name) for item in fields(value)}
    if isinstance(value, (MemberTask, MemberState)):
        return asdict(value)
    return value
