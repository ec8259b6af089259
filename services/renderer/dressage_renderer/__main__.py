"""`python -m dressage_renderer`: the service alone, until SIGTERM."""

from __future__ import annotations

import sys

from dressage.serving.server import main

from dressage_renderer.settings import Settings
from dressage_renderer.wiring import start

if __name__ == "__main__":
    sys.exit(main(Settings, start))
