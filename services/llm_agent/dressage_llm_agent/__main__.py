"""``python -m dressage_llm_agent``: the service alone, until SIGTERM."""

from __future__ import annotations

import asyncio

from dressage.serving import logs, metrics
from dressage.serving.server import run_until_signal
from dressage.serving.settings import load

from dressage_llm_agent.settings import Settings
from dressage_llm_agent.wiring import start


async def _main(settings: Settings) -> None:
    metrics.expose(settings.metrics_address)
    service = await start(settings)
    await run_until_signal(service)


if __name__ == "__main__":
    configured = load(Settings)
    logs.configure(format=configured.log_format, level=configured.log_level)
    asyncio.run(_main(configured))
