"""Reads the descriptions of registered languages: files of data below ``$DRESSAGE_ENVIRONMENTS``."""

from __future__ import annotations

import functools
import json

from dressage.envs import custom
from dressage.errors import InvalidArgument
from dressage.programs.languages.description import Description

DESCRIPTION_FILE = "language.json"
_MAX_BYTES = 1 << 20
_KEPT = 32


def read_description(name: str) -> Description:
    """Return the description of a registered language.

    :raises InvalidArgument: if it is damaged or absent.
    """
    path = custom.language_folder(name) / DESCRIPTION_FILE
    try:
        with path.open("rb") as file:
            data = file.read(_MAX_BYTES + 1)
    except OSError as error:
        data = str(error).encode()
    return _parse(name, data)


def language_code(environment: str) -> str:
    """Return name and version of the registered language whose code plays an environment; empty: none.

    :raises InvalidArgument: if the language's description is damaged.
    """
    if not custom.is_registered_task(environment):
        return ""
    description = read_description(environment.partition("/")[0])
    return f"{description.name}:{description.code.version}"


@functools.lru_cache(maxsize=_KEPT)
def _parse(name: str, data: bytes) -> Description:
    remedy = f"Register it again: dressage programs register; or remove it: dressage programs unregister {name}"
    try:
        if len(data) > _MAX_BYTES:
            raise ValueError("too large")
        description = Description.from_dict(json.loads(data))
        if description.name != name:
            raise ValueError(f"it describes the language {description.name}")
    except (ValueError, RecursionError) as error:
        problem = f"the description cannot be read: {error}"
        raise InvalidArgument(
            field=f"language {name}", problem=problem, expected="a description", remedy=remedy
        ) from error
    except InvalidArgument as error:
        raise InvalidArgument(f"language {name}: {error.message}. {remedy}", field=f"language {name}") from error
    return description
