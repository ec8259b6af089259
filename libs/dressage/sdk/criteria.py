"""The file of criteria for a session: written by `dressage elicit`, edited by a person, read for a run.

The file is JSON, or YAML where its name ends in .yaml or .yml: an object with ``criteria``, each with ``title``,
``description``, ``category`` and ``on``. Criteria that are off are not passed on.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dressage import errors
from dressage.api.v1 import session_pb2
from dressage.sdk.files import read_source

_MOST = 32
_LIMITS = {"title": 200, "description": 2000, "category": 60}
YAML = (".yaml", ".yml")


def read_criteria(path: Path) -> list[session_pb2.IntentCriterion]:
    """The criteria of a file that are on.

    :raises InvalidArgument: if it cannot be read, or is not such a file, naming the entry.
    """
    text = read_source(path, field="--criteria")
    try:
        data = yaml_module(path).safe_load(text) if path.suffix.lower() in YAML else json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _bad(path, f"JSON or YAML ({error})") from error
    except Exception as error:
        # YAML's errors have no base among the standard ones.
        if type(error).__module__.partition(".")[0] != "yaml":
            raise
        raise _bad(path, f"YAML ({' '.join(str(error).split())})") from error
    entries = data.get("criteria") if isinstance(data, dict) else data
    return parse_criteria(entries, path)


def parse_criteria(entries: Any, path: Path | None = None) -> list[session_pb2.IntentCriterion]:
    """The criteria that are on, from a list of objects.

    :param path: the file that the list is from.
    :raises InvalidArgument: naming the entry that is wrong.
    """
    if not isinstance(entries, Sequence) or isinstance(entries, str) or not 1 <= len(entries) <= _MOST:
        raise _bad(
            path, f"an object with a list 'criteria' of 1 to {_MOST} entries, as `dressage elicit --out` writes it"
        )
    chosen = [criterion for place, entry in enumerate(entries) if (criterion := _criterion(place, entry)) is not None]
    if not chosen:
        raise _bad(path, "at least one criterion that is on")
    return chosen


def _criterion(place: int, entry: Any) -> session_pb2.IntentCriterion | None:
    """An entry's criterion; None if it is off."""
    name_of_entry = f"--criteria criteria[{place}]"
    if not isinstance(entry, dict) or not str(entry.get("title") or "").strip():
        raise errors.InvalidArgument(field=name_of_entry, value=entry, expected="an object with a title")
    texts = {}
    for name, most in _LIMITS.items():
        value = entry.get(name) or ""
        if not isinstance(value, str) or len(value) > most:
            seen = f"{len(value)} characters" if isinstance(value, str) else value
            raise errors.InvalidArgument(
                field=f"{name_of_entry}.{name}", value=seen, expected=f"text of at most {most} characters"
            )
        texts[name] = value
    on = entry.get("on", True)
    if not isinstance(on, bool):
        raise errors.InvalidArgument(field=f"{name_of_entry}.on", value=on, expected="true or false")
    return session_pb2.IntentCriterion(**texts, default_on=True) if on else None


def yaml_module(path: Path) -> Any:
    """Import PyYAML.

    :param path: the file that needs it.
    :raises InvalidArgument: if it is not installed.
    """
    try:
        return importlib.import_module("yaml")
    except ModuleNotFoundError as error:
        expected = "a name that ends in .json: YAML needs the package pyyaml, which is not installed"
        raise errors.InvalidArgument(field="file", value=str(path), expected=expected) from error


def _bad(path: Path | None, expected: str) -> errors.InvalidArgument:
    return errors.InvalidArgument(field="--criteria", value=str(path), expected=expected)
