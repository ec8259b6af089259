"""One recorded episode: every field of the card at T+1 instants, and the actions between them.

Row 0 is the state after reset, row t+1 the state after action t. A trajectory needs numpy only, so that judges run
without a simulator; ``qpos`` and ``qvel`` are complete enough to render it.

A file is an ``.npz`` of plain arrays and one JSON entry that describes them: no pickle, bounded in size, written
to a temporary name and renamed. Columns are float32 but ``qpos`` and ``qvel``, which stay float64.
"""

from __future__ import annotations

import json
import secrets
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from dressage.envs import custom
from dressage.envs.cards import EnvironmentCard, load_card
from dressage.envs.catalogue import catalogue
from dressage.envs.state import Array
from dressage.errors import InvalidArgument, UnknownField
from dressage.parsing import ONE_PARSER

_FORMAT = "dressage.trajectory/1"
_FIELD = "field/"
_MAX_BYTES = 1 << 30
_UNREADABLE = (
    OSError,
    ValueError,
    EOFError,
    KeyError,
    MemoryError,
    NotImplementedError,
    zipfile.BadZipFile,
    zlib.error,
)
_VELOCITY_UNITS = ("m/s", "rad/s", "px/step", "1/step")
CHECK_KINDS = ("random", "motionless", "untrained")
"""Kinds of the episodes that are shipped for checking rewards and judges."""


@dataclass(frozen=True)
class Trajectory:
    """A recorded episode of T steps. Fields are also attributes: ``trajectory.x_velocity``.

    :param fields: (T+1, ...) arrays by field name.
    :param action: (T, A), as given to the environment; (T,) where it is a single integer.
    :param reward: (T,) stock reward.
    :param qpos: (T+1, nq) float64 simulator positions.
    :param qvel: (T+1, nv) float64 simulator velocities.
    :param metadata: JSON-ready facts (options, versions, source).
    """

    environment: str
    seed: int
    fields: Mapping[str, Array]
    action: Array
    reward: Array
    terminated: bool
    truncated: bool
    qpos: Array
    qvel: Array
    metadata: Mapping[str, Any] = field(default_factory=dict)

    def __getattr__(self, name: str) -> Array:
        if name.startswith("__") or name == "fields":
            raise AttributeError(name)
        if name not in self.fields:
            raise UnknownField("trajectory", name, list(self.fields))
        return self.fields[name]

    @property
    def num_steps(self) -> int:
        """T."""
        return len(self.reward)

    @property
    def stock_return(self) -> float:
        """Sum of the stock reward."""
        return float(np.sum(self.reward, dtype=np.float64))

    def save(self, path: str | Path, *, compress: bool = False) -> None:
        """Write the trajectory; the file appears whole or not at all. The artifact store syncs what it keeps, not this."""
        path = Path(path)
        schema = {
            "format": _FORMAT,
            "environment": self.environment,
            "seed": self.seed,
            "num_steps": self.num_steps,
            "terminated": self.terminated,
            "truncated": self.truncated,
            "fields": list(self.fields),
            "metadata": dict(self.metadata),
        }
        arrays: dict[str, Array] = {
            "schema": np.frombuffer(json.dumps(schema, allow_nan=False).encode(), dtype=np.uint8),
            "action": self.action.astype(np.float32),
            "reward": self.reward.astype(np.float32),
            "qpos": self.qpos.astype(np.float64),
            "qvel": self.qvel.astype(np.float64),
            **{_FIELD + name: array.astype(np.float32) for name, array in self.fields.items()},
        }
        temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
        try:
            with temporary.open("wb") as file:
                (np.savez_compressed if compress else np.savez)(file, allow_pickle=False, **arrays)
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)

    @classmethod
    def load(cls, path: str | Path) -> Trajectory:
        """Read a file of `save`; columns are float32.

        :raises InvalidArgument: for any other file.
        """
        path = Path(path)
        try:
            _check_size(path)
            with ONE_PARSER, np.load(path, allow_pickle=False) as file:
                arrays = {name: file[name] for name in file.files}
        except _UNREADABLE as error:
            raise _bad(path, f"not readable as .npz ({error})") from error
        return _from_arrays(arrays, path)

    def reverse_time(self) -> Trajectory:
        """Return the episode played backwards: states and actions in reverse order, velocities negated, time running on.

        A null control for judges: a film of it looks plausible, but it is not the behaviour.
        """
        card = load_card(self.environment)
        fields = {name: _reversed_field(card, name, array) for name, array in self.fields.items()}
        return replace(
            self,
            fields=fields,
            action=self.action[::-1].copy(),
            reward=self.reward[::-1].copy(),
            qpos=self.qpos[::-1].copy(),
            qvel=-self.qvel[::-1],
            terminated=False,
            truncated=True,
            metadata={**self.metadata, "time_reversed": True},
        )

    def extend(self, steps: int) -> Trajectory:
        """Return an episode of ``steps`` steps that plays this one forwards and backwards over and over.

        Positions are continuous and every value was recorded, so that code meets an episode of full length before there is one.
        An episode that is long enough is returned as it is.

        :param steps: at least 1.
        """
        if self.num_steps >= steps or not self.num_steps:
            return self
        rows = _back_and_forth(self.num_steps + 1, steps + 1)
        turns = _back_and_forth(self.num_steps, steps)
        fields = {name: array[rows] for name, array in self.fields.items()}
        if "time" in fields:
            step = (float(self.fields["time"][-1]) - float(self.fields["time"][0])) / self.num_steps
            fields["time"] = (self.fields["time"][0] + step * np.arange(steps + 1)).astype(self.fields["time"].dtype)
        return replace(
            self,
            fields=fields,
            action=self.action[turns],
            reward=self.reward[turns],
            qpos=self.qpos[rows],
            qvel=self.qvel[rows],
            terminated=False,
            truncated=True,
            metadata={**self.metadata, "prolonged": True},
        )


def load_check_trajectories(env_id: str) -> dict[str, list[Trajectory]]:
    """Return the short episodes shipped for checks, by kind: ``random``, ``motionless``, ``untrained``.

    :raises NotFound: for an unknown environment.
    """
    load_card(env_id)
    if custom.is_custom(env_id):
        return _check_files(custom.folder_of(env_id) / custom.TRAJECTORIES)
    return _check_files(catalogue()[env_id].trajectories)


def _check_files(folder: Path) -> dict[str, list[Trajectory]]:
    return {kind: [Trajectory.load(file) for file in sorted(folder.glob(f"{kind}_*.npz"))] for kind in CHECK_KINDS}


def _back_and_forth(count: int, length: int) -> Array:
    """Return ``length`` indices that run 0, 1, …, count - 1, count - 2, …, 1, 0, 1, …"""
    if count == 1:
        return np.zeros(length, np.int64)
    place = np.arange(length) % (2 * count - 2)
    return np.minimum(place, 2 * count - 2 - place)


def _reversed_field(card: EnvironmentCard, name: str, array: Array) -> Array:
    if name == "time":
        return array.copy()
    backwards = array[::-1].copy()
    if name == "observation":
        for index, component in enumerate(card.observation_components):
            if component.unit in _VELOCITY_UNITS:
                backwards[:, index] *= -1
        return backwards
    return -backwards if name in card.field_names and card.field(name).unit in _VELOCITY_UNITS else backwards


def _check_size(path: Path) -> None:
    """Refuse a small file that unpacks to a huge one before unpacking it."""
    with zipfile.ZipFile(path) as archive:
        total = sum(entry.file_size for entry in archive.infolist())
    if total > _MAX_BYTES:
        raise ValueError(f"unpacks to {total} bytes, more than {_MAX_BYTES}")


def _from_arrays(arrays: dict[str, Array], path: Path) -> Trajectory:
    schema = _schema(arrays, path)
    steps, names = schema["num_steps"], schema["fields"]
    required = ("action", "reward", "qpos", "qvel", *(_FIELD + name for name in names))
    for name in required:
        rows = steps if name in ("action", "reward") else steps + 1
        array = arrays.get(name)
        if array is None:
            raise _bad(path, f"array {name!r} is missing")
        if array.ndim == 0 or len(array) != rows or array.dtype.kind != "f":
            raise _bad(path, f"array {name!r} is {array.dtype} {array.shape}, expected {rows} rows of floats")
    return Trajectory(
        environment=schema["environment"],
        seed=schema["seed"],
        fields={name: arrays[_FIELD + name] for name in names},
        action=arrays["action"],
        reward=arrays["reward"],
        terminated=schema["terminated"],
        truncated=schema["truncated"],
        qpos=arrays["qpos"],
        qvel=arrays["qvel"],
        metadata=schema["metadata"],
    )


_SCHEMA_TYPES: dict[str, type] = {
    "environment": str,
    "seed": int,
    "num_steps": int,
    "terminated": bool,
    "truncated": bool,
    "fields": list,
    "metadata": dict,
}


def _schema(arrays: dict[str, Array], path: Path) -> dict[str, Any]:
    entry = arrays.get("schema")
    if entry is None or entry.dtype != np.uint8:
        raise _bad(path, "the entry 'schema' is missing or not bytes")
    try:
        schema = json.loads(entry.tobytes())
    except ValueError as error:
        raise _bad(path, f"the entry 'schema' is no JSON ({error})") from error
    if not isinstance(schema, dict) or schema.get("format") != _FORMAT:
        raise _bad(path, f"the schema's format is not {_FORMAT}")
    for name, kind in _SCHEMA_TYPES.items():
        if not isinstance(schema.get(name), kind):
            raise _bad(path, f"the schema's {name!r} is {schema.get(name)!r}, expected {kind.__name__}")
    if not all(isinstance(name, str) for name in schema["fields"]):
        raise _bad(path, "the schema's 'fields' are not all names")
    return schema


def _bad(path: Path, why: str) -> InvalidArgument:
    return InvalidArgument(
        f"{path.name} is not a trajectory file: {why}", field="path", value=path.name, expected=_FORMAT
    )
