"""Folders of the user. Imports only the standard library and platformdirs, because every command imports it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

FOLDERS = {"DRESSAGE_ENVIRONMENTS": "environments", "DRESSAGE_PACKS": "packs"}
"""Variables with folders for custom environments and environment packs, and their names in the data folder."""


def default_data_dir(environ: Mapping[str, str] = os.environ) -> Path:
    """Return `$DRESSAGE_HOME`, else the platform's folder for user data."""
    if environ.get("DRESSAGE_HOME"):
        return Path(environ["DRESSAGE_HOME"]).expanduser().absolute()
    import platformdirs

    return Path(platformdirs.user_data_dir("dressage"))


def data_dir(folder: Path | None) -> Path:
    """The data folder in use: the given one, else `$DRESSAGE_HOME`, else the platform's place."""
    return default_data_dir() if folder is None else folder.expanduser().absolute()
