"""Files that a user names: sources, and criteria for a session.

A file of criteria is written by `dressage elicit`, edited by a person, and read for a run. It is JSON, or YAML if its name ends
in .yaml or .yml: an object with ``criteria``, each with ``title``, ``description``, ``category`` and ``on``. Those that are off
are not passed on.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dressage import errors
from dressage.api.v1 import session_pb2
from dressage.installation import install_command

_MAX_SOURCE_BYTES = 262_144
_MAX_CRITERIA = 32
_LIMITS = {"title": 200, "description": 2000, "category": 60}
YAML = (".yaml", ".yml")


def read_source(path: Path, *, field: str) -> str:
    """Return the text of a source file.

    :raises InvalidArgument: if it cannot be read, is not UTF-8, exceeds 256 KiB or is empty.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise errors.InvalidArgument(
            field=field, problem=f"cannot be read: {error.strerror}", value=str(path), expected="a readable file"
        ) from error
    if len(data) > _MAX_SOURCE_BYTES:
        raise errors.InvalidArgument(
            field=field, problem="too large", value=len(data), expected=f"at most {_MAX_SOURCE_BYTES} bytes"
        )
    try:
        text = data.decode("utf-8-sig")  # some editors write a byte order mark
    except UnicodeDecodeError as error:
        raise errors.InvalidArgument(
            field=field, problem="not UTF-8", value=str(path), expected="UTF-8 text"
        ) from error
    if not text.strip():  # an empty field of a message means that it is not set
        raise errors.InvalidArgument(
            field=field, problem="empty file", value=str(path), expected="a file that is not empty"
        )
    return text


def read_criteria(path: Path) -> list[session_pb2.IntentCriterion]:
    """Return the criteria of a file that are on.

    :raises InvalidArgument: if the file cannot be read, or naming an invalid entry.
    """
    text = read_source(path, field="criteria")
    try:
        data = yaml_module(path).safe_load(text) if path.suffix.lower() in YAML else json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _invalid(path, f"not JSON or YAML: {error}") from error
    except Exception as error:
        # Errors of YAML have no base class of the standard library.
        if type(error).__module__.partition(".")[0] != "yaml":
            raise
        raise _invalid(path, f"not YAML: {' '.join(str(error).split())}") from error
    entries = data.get("criteria") if isinstance(data, dict) else data
    return parse_criteria(entries, path)


def parse_criteria(entries: Any, path: Path | None = None) -> list[session_pb2.IntentCriterion]:
    """Return the criteria that are on, of a list of objects.

    :param path: the file of the list.
    :raises InvalidArgument: naming the invalid entry.
    """
    if not isinstance(entries, Sequence) or isinstance(entries, str) or not 1 <= len(entries) <= _MAX_CRITERIA:
        raise _invalid(path, f"not a list of 1 to {_MAX_CRITERIA} criteria")
    chosen = [criterion for index, entry in enumerate(entries) if (criterion := _criterion(index, entry)) is not None]
    if not chosen:
        raise _invalid(path, "no criterion is on")
    return chosen


def _criterion(index: int, entry: Any) -> session_pb2.IntentCriterion | None:
    """Return the criterion of an entry; None if it is off."""
    place = f"criteria[{index}]"
    if not isinstance(entry, dict) or not str(entry.get("title") or "").strip():
        raise errors.InvalidArgument(field=place, value=entry, expected="an object with a title")
    texts = {}
    for name, limit in _LIMITS.items():
        value = entry.get(name) or ""
        if not isinstance(value, str) or len(value) > limit:
            seen = f"{len(value)} characters" if isinstance(value, str) else value
            raise errors.InvalidArgument(
                field=f"{place}.{name}", value=seen, expected=f"text of at most {limit} characters"
            )
        texts[name] = value
    # YAML 1.1, which PyYAML reads, takes an unquoted `on` for true, also as a key.
    on = entry.get("on", entry.get(True, True))
    if not isinstance(on, bool):
        raise errors.InvalidArgument(field=f"{place}.on", value=on, expected="true or false")
    return session_pb2.IntentCriterion(**texts, default_on=True) if on else None


def yaml_module(path: Path) -> Any:
    """Import PyYAML.

    :param path: the file that needs it.
    :raises InvalidArgument: if it is not installed.
    """
    try:
        return importlib.import_module("yaml")
    except ModuleNotFoundError as error:
        raise errors.InvalidArgument(
            field="file",
            problem="YAML is not supported here",
            value=str(path),
            expected="a name that ends in .json",
            remedy=f"To use YAML: {install_command('experiments')}.",
        ) from error


def _invalid(path: Path | None, problem: str) -> errors.InvalidArgument:
    if path is None:
        return errors.InvalidArgument(field="criteria", problem=problem, expected="objects with a title")
    expected = "a file that `dressage elicit --out` writes"
    return errors.InvalidArgument(field="criteria", problem=problem, value=str(path), expected=expected)
