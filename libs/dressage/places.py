"""Folders of this machine's user. Standard library and platformdirs only: every command imports this."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path


def default_data_dir(environ: Mapping[str, str] = os.environ) -> Path:
    """`$DRESSAGE_HOME`, or the platform's place for a user's data."""
    if environ.get("DRESSAGE_HOME"):
        return Path(environ["DRESSAGE_HOME"]).expanduser().absolute()
    import platformdirs

    return Path(platformdirs.user_data_dir("dressage"))


def data_dir(given: Path | None) -> Path:
    """The data folder in use: the given one, else `$DRESSAGE_HOME`, else the platform's place."""
    return default_data_dir() if given is None else given.expanduser().absolute()
