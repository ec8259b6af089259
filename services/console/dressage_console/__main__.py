"""`python -m dressage_console`: the service alone, until SIGTERM."""

from __future__ import annotations

import sys

from dressage.serving.server import main

from dressage_console.settings import Settings
from dressage_console.wiring import start

if __name__ == "__main__":
    sys.exit(main(Settings, start))
