"""``python -m dressage_orchestrator``: settings from the environment, then serve until SIGTERM."""

from __future__ import annotations

import asyncio
import sys

from dressage.errors import DressageError
from dressage.serving import logs
from dressage.serving.server import run_until_signal
from dressage.serving.settings import load

from dressage_orchestrator.settings import Settings
from dressage_orchestrator.wiring import start


async def serve(settings: Settings) -> None:
    """Serves until a signal."""
    await run_until_signal(await start(settings))


def main() -> int:
    """The program; its exit code."""
    settings = load(Settings)
    logs.configure(format=settings.log_format, level=settings.log_level)
    try:
        asyncio.run(serve(settings))
    except DressageError as error:
        print(f"error: {error.message}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
