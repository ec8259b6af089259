"""Custom environments: where they are kept, and the form of their ids.

An id is ``mjcf:NAME`` for a model in MuJoCo's XML, ``gymnasium:ID`` for an environment registered with Gymnasium,
``gymnasium:MODULE:ID`` for one of the user's own module. ``dressage
envs add`` describes one once, with the simulator at hand, and writes a folder ``<id>`` with ``card.json``, the model and
check episodes below the folder that ``$DRESSAGE_ENVIRONMENTS`` names. From then on it is an environment like the others,
also for services without a simulator. All services of a session must see the same folder.

A registered language of programs (`dressage.programs.languages`) is a folder ``languages/NAME`` there. Its tasks are
environments with ids such as ``vacuum/CleanRoom``; their cards are in its folder ``cards``.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

from dressage.errors import InvalidArgument, NotFound

VARIABLE = "DRESSAGE_ENVIRONMENTS"
MODEL, GYMNASIUM = "mjcf:", "gymnasium:"
MODEL_FILE, CARD_FILE, TRAJECTORIES = "model.mjb", "card.json", "trajectories"
XML_FILE = "model.zip"
"""The XML of a model with the files that it includes, see `dressage.envs.xml_models`; none if it was not kept."""
LANGUAGES, CARDS = "languages", "cards"

SOURCE = "source"
"""Folder with the module of an environment of the user's own, unless the module is installed."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,79}")
_OWN = re.compile(r"(?P<module>[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*):[A-Za-z0-9][A-Za-z0-9_.-]{0,79}")
_MAX_ID = 100
_MAX_CARD_BYTES = 4 << 20


def is_custom(env_id: str) -> bool:
    """Return whether an id has the form of a custom environment's, or is that of a task of a registered language."""
    return env_id.startswith((MODEL, GYMNASIUM)) or is_registered_task(env_id)


def is_registered_task(env_id: str) -> bool:
    """Return whether an id is that of a task of a registered language."""
    language, _, task = env_id.partition("/")
    return bool(task) and language in language_names()


def language_folder(name: str) -> Path:
    """Return the folder of a registered language.

    :raises NotFound: when no folder for custom environments is named.
    """
    root = os.environ.get(VARIABLE, "")
    if not root:
        raise NotFound(f"unknown language {name[:60]!r}: {VARIABLE} names no folder", reason="LANGUAGE_NOT_FOUND")
    return Path(root) / LANGUAGES / name


def language_names() -> tuple[str, ...]:
    """Return the names of the registered languages, sorted."""
    root = Path(os.environ.get(VARIABLE) or "/nonexistent") / LANGUAGES
    try:
        return tuple(sorted(entry.name for entry in root.iterdir() if _NAME.fullmatch(entry.name)))
    except OSError:
        return ()


def task_ids() -> tuple[str, ...]:
    """Return the ids of the tasks of the registered languages, sorted."""
    ids = []
    for name in language_names():
        cards = (language_folder(name) / CARDS).glob("*.json")
        ids += [f"{name}/{path.stem}" for path in cards if _NAME.fullmatch(path.stem)]
    return tuple(sorted(ids))


def module_of(env_id: str) -> str:
    """Return the module of ``gymnasium:MODULE:ID``, which only sandboxed processes import; empty for other ids."""
    match = _OWN.fullmatch(env_id.removeprefix(GYMNASIUM)) if env_id.startswith(GYMNASIUM) else None
    return match["module"] if match else ""


def _is_name(env_id: str) -> bool:
    return len(env_id) <= _MAX_ID and bool(_NAME.fullmatch(env_id.partition(":")[2]) or module_of(env_id))


def folder_of(env_id: str) -> Path:
    """Return the folder of a custom environment.

    :raises InvalidArgument: for a name that is no plain word.
    :raises NotFound: when no folder for custom environments is named.
    """
    if not _is_name(env_id):
        expected = "mjcf:NAME, gymnasium:ID or gymnasium:MODULE:ID, of letters, digits, '_', '.' and '-' (80 at most)"
        raise InvalidArgument(field="environment", value=env_id[:100], expected=expected)
    root = os.environ.get(VARIABLE, "")
    if not root:
        raise NotFound(
            f"unknown environment {env_id!r}: {VARIABLE} names no folder of custom environments",
            reason="ENVIRONMENT_NOT_FOUND",
        )
    return Path(root) / env_id


def custom_ids() -> tuple[str, ...]:
    """Return the ids of the custom environments that exist, sorted."""
    root = Path(os.environ.get(VARIABLE) or "/nonexistent")
    names = (path.parent.name for path in root.glob(f"*/{CARD_FILE}"))
    models = sorted(name for name in names if is_custom(name) and _is_name(name))
    return (*models, *task_ids())


def _card_path(env_id: str) -> Path:
    if not is_registered_task(env_id):
        return folder_of(env_id) / CARD_FILE
    language, _, task = env_id.partition("/")
    if not _NAME.fullmatch(task):
        expected = "a task's name, of letters, digits, '_', '.' and '-' (80 at most)"
        raise InvalidArgument(field="environment", value=env_id[:100], expected=expected)
    return language_folder(language) / CARDS / f"{task}.json"


def read_card(env_id: str) -> dict[str, Any]:
    """Return the card's data.

    :raises NotFound: saying how to add the environment.
    :raises InvalidArgument: for a damaged file.
    """
    path = _card_path(env_id)
    try:
        with path.open("rb") as file:
            text = file.read(_MAX_CARD_BYTES + 1)
        if len(text) > _MAX_CARD_BYTES:
            raise ValueError("too large")
        data: dict[str, Any] = json.loads(text)
    except FileNotFoundError:
        source = env_id if env_id.startswith(GYMNASIUM) else "PATH.xml"
        names = ", ".join(custom_ids()) or "none"
        if is_registered_task(env_id):
            raise NotFound(
                f"unknown task {env_id[:60]!r} of a registered language (custom environments: {names})",
                reason="ENVIRONMENT_NOT_FOUND",
                metadata={"environment": env_id[:60], "known": names},
            ) from None
        raise NotFound(
            f"unknown environment {env_id!r}; add it with `dressage envs add {source}` (custom environments: {names})",
            reason="ENVIRONMENT_NOT_FOUND",
            metadata={"environment": env_id, "known": names},
        ) from None
    except (OSError, ValueError) as error:
        raise InvalidArgument(
            f"the card of {env_id!r} cannot be read: {error}", field="environment", expected="a card; add it again"
        ) from error
    return data
