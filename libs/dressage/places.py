"""Folders of this machine's user. Standard library and platformdirs only: the command line asks at every start."""

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
