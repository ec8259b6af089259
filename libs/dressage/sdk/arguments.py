"""Arguments of the functions of `dressage` that are no settings of a session: servers, folders, environments, roles."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from dressage.client.endpoints import Trust
from dressage.errors import InvalidArgument
from dressage.local.connection import ServerOptions
from dressage.places import FOLDERS
from dressage.places import data_dir as folder_in_use

_OF_ROLE = re.compile(r"([a-z][a-z_]{0,39})=(.*)", re.DOTALL)


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


def by_role(name: str, values: str | Sequence[str]) -> dict[str, str]:
    """Return an argument's values by role; the session's value, which names no role, has the role ``""``.

    :param name: the argument, for errors.
    :raises InvalidArgument: if a role has two values, or an empty one.
    """
    chosen: dict[str, str] = {}
    for text in [values] if isinstance(values, str) else values:
        match = _OF_ROLE.fullmatch(text)
        role, value = (match[1], match[2]) if match else ("", text)
        if role in chosen or (role and not value):
            problem = "given more than once" if role in chosen else "empty"
            expected = "one value for the session, and ROLE=VALUE at most once for each role"
            raise InvalidArgument(field=name, problem=problem, value=text, expected=expected)
        if value:
            chosen[role] = value
    return chosen
