"""`python -m dressage_llm_agent`: the service alone, until SIGTERM."""

from __future__ import annotations

import sys

from dressage.serving.server import main

from dressage_llm_agent.settings import Settings
from dressage_llm_agent.wiring import start

if __name__ == "__main__":
    sys.exit(main(Settings, start))
