"""Hatch's build hook: the console's page in the wheel.

`make console` builds the page into a folder that git ignores. A wheel takes it along if it is there. Without it a build
fails if `DRESSAGE_RELEASE` is set, and otherwise warns: editable installs, images of other services and CI's wheel need no
Node.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

STATIC = "services/console/dressage_console/static"


class ConsoleAssets(BuildHookInterface[Any]):
    """Adds the built page to wheels."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add the page, or state that it is missing."""
        if version == "editable":
            return
        if (Path(self.root) / STATIC / "index.html").is_file():
            build_data["force_include"][str(Path(self.root) / STATIC)] = "dressage_console/static"
        elif os.environ.get("DRESSAGE_RELEASE"):
            raise RuntimeError(
                f"{STATIC}: the console's page is not built, and DRESSAGE_RELEASE is set. Run `make console` first."
            )
        elif (Path(self.root) / STATIC).parent.is_dir():
            self.app.display_warning("The wheel has no page of the console: `make console` builds it.")
