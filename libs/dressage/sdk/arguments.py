"""Arguments of the functions of `dressage`: folders and options as the command line takes them."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from dressage.client.endpoints import Trust
from dressage.errors import InvalidArgument
from dressage.local.connection import ServerOptions
from dressage.places import FOLDERS
from dressage.places import data_dir as folder_in_use
from dressage.sdk.role_options import by_role


def environment_id(env: str) -> str:
    """Return the id of ``Hopper-v5`` or ``environments/Hopper-v5``.

    :raises InvalidArgument: if it is no such text.
    """
    if not isinstance(env, str) or not env.removeprefix("environments/"):
        raise InvalidArgument(field="env", value=env, expected="an environment id, such as Hopper-v5")
    return env.removeprefix("environments/")


@contextmanager
def own_environments(data_dir: str | os.PathLike[str] | None) -> Iterator[Path]:
    """Use the own environments and packs of the data folder, unless variables name other folders.

    :returns: the data folder in use.
    """
    folder = folder_in_use(None if data_dir is None else Path(data_dir))
    unset = {variable: name for variable, name in FOLDERS.items() if not os.environ.get(variable)}
    for variable, name in unset.items():
        os.environ[variable] = str(folder / name)  # inherited by the processes that are started meanwhile
    try:
        yield folder
    finally:
        for variable in unset:
            os.environ.pop(variable, None)


@contextmanager
def preserved_logging() -> Iterator[None]:
    """Restore the program's logging: services in this process write theirs to ``logs/server.log`` of the data folder."""
    import structlog

    root = logging.getLogger()
    handlers, level, configuration = root.handlers[:], root.level, structlog.get_config()
    try:
        yield
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)
        structlog.configure(**configuration)


def server_options(
    *,
    address: str | None,
    token: str | None,
    data_dir: str | os.PathLike[str] | None,
    api_base: str | Sequence[str] | None = None,
    recordings: Path | None = None,
) -> ServerOptions:
    """Which server to use, with the defaults of the command line: ``$DRESSAGE_ADDRESS``, ``$DRESSAGE_TOKEN`` and so on."""
    bases = by_role("api_base", api_base or ())
    return ServerOptions(
        address=address or os.environ.get("DRESSAGE_ADDRESS") or None,
        token=token or os.environ.get("DRESSAGE_TOKEN") or None,
        data_dir=None if data_dir is None else Path(data_dir),
        api_base=bases.pop("", None),
        recordings=recordings,
        api_bases=tuple(bases.values()),
        trust=Trust.from_environment(),
    )


def pairs(values: Mapping[str, Any] | None) -> list[str]:
    """Return ``NAME=VALUE`` for each entry, and for each element of a list."""
    return [
        f"{name}={_text(element)}"
        for name, value in (values or {}).items()
        for element in (value if isinstance(value, list | tuple) else [value])
    ]


def config_texts(configs: Mapping[str, Mapping[str, Any]] | None) -> list[str]:
    """Return ``ID:name=value,name=value`` for each config; sizes of layers are written ``64x64``."""
    texts = []
    for name, values in (configs or {}).items():
        parts = [
            f"{key}={_sizes(value) if isinstance(value, list | tuple) else value}" for key, value in values.items()
        ]
        texts.append(f"{name}:{','.join(parts)}")
    return texts


def _sizes(values: Sequence[int]) -> str:
    return "x".join(map(str, values))


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
