"""`python -m dressage_console`: the console alone."""

from __future__ import annotations

import asyncio

from dressage.serving import logs, metrics, settings
from dressage.serving.server import run_until_signal

from dressage_console.settings import Settings
from dressage_console.wiring import start


async def run(configured: Settings) -> None:
    """Serve until SIGTERM."""
    await run_until_signal(await start(configured))


def main() -> None:
    """Read the settings and serve."""
    configured = settings.load(Settings)
    logs.configure(format=configured.log_format, level=configured.log_level)
    metrics.expose(configured.metrics_address)
    asyncio.run(run(configured))


if __name__ == "__main__":
    main()
