"""The main function of a service that runs alone: settings, logs, metrics, then serve until SIGTERM."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable

from dressage.errors import DressageError
from dressage.serving import logs, metrics
from dressage.serving.server import RunningService, run_until_signal
from dressage.serving.settings import SettingsT, load


def main(kind: type[SettingsT], start: Callable[[SettingsT], Awaitable[RunningService]]) -> int:
    """Read the settings, start the service and serve until SIGTERM; returns the exit status."""
    settings = load(kind)
    logs.configure(format=settings.log_format, level=settings.log_level)

    async def serve() -> None:
        metrics.expose(settings.metrics_address)
        await run_until_signal(await start(settings))

    try:
        asyncio.run(serve())
    except DressageError as error:
        print(f"error: {error.message}", file=sys.stderr)
        return 1
    return 0
