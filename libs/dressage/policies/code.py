"""The bundle of a code policy: ``policy.py``, its source, and ``card.json``, which describes its environment and spaces.

Loading reads text only. `dressage.load` runs the source in a sandboxed process.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dressage.errors import InvalidArgument
from dressage.policies import text_bundle
from dressage.policies.bundle import CARD_FILE
from dressage.policies.card import FORMAT, is_count, is_number

SOURCE_FILE = "policy.py"
CODE = "code"


@dataclass(frozen=True)
class CodePolicy:
    """The source of a policy, and what it was written for.

    :param source: Python source with a class ``Policy``.
    :param environment: environment id, such as ``NoiseWorld1-v0``.
    :param observation_size: components of an observation; 0 where observations are discrete.
    :param observation_count: number of discrete observations; 0 otherwise.
    :param num_actions: number of discrete actions; 0 where actions are boxes.
    :param action_low: lower bound of each action component; empty for discrete actions.
    :param environment_options: options that differ from those of the stock environment.
    :param provenance: origin of the policy, as plain JSON data.
    """

    source: str = field(repr=False)
    environment: str
    observation_size: int = 0
    observation_count: int = 0
    num_actions: int = 0
    action_low: tuple[float, ...] = ()
    action_high: tuple[float, ...] = ()
    environment_options: dict[str, Any] = field(default_factory=dict)
    provenance: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        low, high = self.action_low, self.action_high
        size = len(self.source.encode("utf-8", "replace"))
        _check("policy.py", f"{len(self.source)} characters", 0 < size <= text_bundle.MAX_BYTES)
        _check("environment", self.environment, isinstance(self.environment, str) and self.environment != "")
        sizes = (self.observation_size, self.observation_count)
        _check("observation_size", sizes, sorted(map(is_count, sizes)) == [False, True] and 0 in sizes)
        if self.num_actions:
            _check("action.num_actions", self.num_actions, is_count(self.num_actions) and not low and not high)
        else:
            bounds = len(low) == len(high) > 0 and all(
                is_number(a) and is_number(b) and a < b for a, b in zip(low, high, strict=True)
            )
            _check("action.low, action.high", (low, high), bounds)

    @property
    def sha256(self) -> str:
        """SHA-256 of the source, in hex."""
        return hashlib.sha256(self.source.encode()).hexdigest()

    @property
    def card(self) -> dict[str, Any]:
        """The contents of ``card.json``."""
        discrete = {"kind": "discrete", "num_actions": self.num_actions}
        box = {"kind": "box", "low": list(self.action_low), "high": list(self.action_high)}
        count = {"observation_count": self.observation_count}
        return {
            "format": FORMAT,
            "kind": CODE,
            "environment": {"id": self.environment, "options": self.environment_options},
            **(count if self.observation_count else {"observation_size": self.observation_size}),
            "action": discrete if self.num_actions else box,
            "sha256": self.sha256,
            "provenance": self.provenance,
        }

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the bundle as a folder, or as one file if the name ends in ``.zip``. `load_code` reads both.

        :returns: the folder or the file.
        """
        return text_bundle.save_texts(path, self._files())

    def to_bytes(self) -> bytes:
        """Return the bundle as the contents of a ``.zip`` file."""
        return text_bundle.zip_texts(self._files())

    def _files(self) -> dict[str, str]:
        return {SOURCE_FILE: self.source, CARD_FILE: self._card_text()}

    def _card_text(self) -> str:
        return json.dumps(self.card, indent=2, sort_keys=True) + "\n"


def load_code(path: str | os.PathLike[str]) -> CodePolicy:
    """Load the bundle of a code policy, without running it.

    :param path: its folder, or a ``.zip`` file.
    :raises NotFound: if a file of the bundle is missing.
    :raises InvalidArgument: if a file is damaged, or the card is that of another kind.
    """
    folder = Path(path)
    if folder.suffix == ".zip" and folder.is_file():
        return code_from_bytes(folder.read_bytes(), name=str(folder))
    raw_card, raw_source = text_bundle.read_folder(folder, (CARD_FILE, SOURCE_FILE))
    return _decode(raw_card, raw_source, folder)


def code_from_bytes(data: bytes, *, name: str = "policy.zip") -> CodePolicy:
    """Load what `CodePolicy.to_bytes` returned.

    :param name: how errors name it.
    :raises InvalidArgument: where it is no such file, or is damaged.
    """
    raw_card, raw_source = text_bundle.read_zip(data, (CARD_FILE, SOURCE_FILE), name=name, kind="code policy")
    return _decode(raw_card, raw_source, Path(name))


def is_code(path: str | os.PathLike[str]) -> bool:
    """Return whether a path is the bundle of a code policy: its folder, one of its files, or a ``.zip`` file."""
    return text_bundle.has_file(path, SOURCE_FILE)


def is_code_bytes(data: bytes) -> bool:
    """Return whether these are the contents of a ``.zip`` file of a code policy."""
    return text_bundle.zip_has_file(data, SOURCE_FILE)


def _decode(raw_card: bytes, raw_source: bytes, place: Path) -> CodePolicy:
    try:
        values, source = json.loads(raw_card), raw_source.decode()
    except (ValueError, RecursionError) as error:
        raise InvalidArgument(f"{place}: damaged ({error})", field=CARD_FILE) from error
    seen = (values.get("format"), values.get("kind")) if isinstance(values, Mapping) else None
    if seen != (FORMAT, CODE):
        raise InvalidArgument(field="card.json format, kind", value=seen, expected=f"{FORMAT} and {CODE}")
    try:
        action, environment = values["action"], values["environment"]
        policy = CodePolicy(
            source=source,
            environment=environment["id"],
            observation_size=values.get("observation_size", 0),
            observation_count=values.get("observation_count", 0),
            num_actions=action.get("num_actions", 0),
            action_low=tuple(map(float, action.get("low", ()))),
            action_high=tuple(map(float, action.get("high", ()))),
            environment_options=dict(environment.get("options", {})),
            provenance=dict(values.get("provenance", {})),
        )
        card_sha256 = values["sha256"]
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise InvalidArgument(f"card.json: an entry is missing or malformed ({error!r})", field="card.json") from error
    if card_sha256 != policy.sha256:
        raise InvalidArgument(
            field="card.json sha256", value=card_sha256, expected=f"{policy.sha256}, that of {SOURCE_FILE}"
        )
    return policy


def _check(name: str, value: object, ok: bool) -> None:
    expected = {
        "environment": "an environment id",
        "observation_size": "either a positive observation_size or a positive observation_count",
        "action.num_actions": "a positive number of discrete actions, without bounds",
        "action.low, action.high": "finite bounds, low < high, of equal number; none for discrete actions",
    }.get(name, f"at most {text_bundle.MAX_BYTES} bytes")
    if not ok:
        field_ = name if "." in name and not name.startswith("action") else f"card.json {name}"
        raise InvalidArgument(field=field_, value=value, expected=expected)
