"""Custom environments: where they are kept, and the form of their ids.

An id is ``mjcf:NAME`` for a model in MuJoCo's XML, ``gymnasium:ID`` for an environment registered with Gymnasium. ``dressage
envs add`` describes one once, with the simulator at hand, and writes a folder ``<id>`` with ``card.json``, the model and
check episodes below the folder that ``$DRESSAGE_ENVIRONMENTS`` names. From then on it is an environment like the others,
also for services without a simulator. All services of a session must see the same folder.
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

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,79}")
_MAX_CARD_BYTES = 4 << 20


def is_custom(env_id: str) -> bool:
    """Return whether an id has the form of a custom environment's."""
    return env_id.startswith((MODEL, GYMNASIUM))


def folder_of(env_id: str) -> Path:
    """Return the folder of a custom environment.

    :raises InvalidArgument: for a name that is no plain word.
    :raises NotFound: when no folder for custom environments is named.
    """
    _, _, name = env_id.partition(":")
    if not _NAME.fullmatch(name):
        expected = "mjcf:NAME or gymnasium:ID, of letters, digits, '_', '.' and '-' (80 at most)"
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
    return tuple(sorted(name for name in names if is_custom(name) and _NAME.fullmatch(name.partition(":")[2])))


def read_card(env_id: str) -> dict[str, Any]:
    """Return the card's data.

    :raises NotFound: saying how to add the environment.
    :raises InvalidArgument: for a damaged file.
    """
    path = folder_of(env_id) / CARD_FILE
    try:
        with path.open("rb") as file:
            text = file.read(_MAX_CARD_BYTES + 1)
        if len(text) > _MAX_CARD_BYTES:
            raise ValueError("too large")
        data: dict[str, Any] = json.loads(text)
    except FileNotFoundError:
        source = env_id if env_id.startswith(GYMNASIUM) else "PATH.xml"
        known = ", ".join(custom_ids()) or "none"
        raise NotFound(
            f"unknown environment {env_id!r}; add it with `dressage envs add {source}` (custom environments: {known})",
            reason="ENVIRONMENT_NOT_FOUND",
            metadata={"environment": env_id, "known": known},
        ) from None
    except (OSError, ValueError) as error:
        raise InvalidArgument(
            f"the card of {env_id!r} cannot be read: {error}", field="environment", expected="a card; add it again"
        ) from error
    return data
