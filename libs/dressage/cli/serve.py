"""`dressage serve`: the local stack, kept up until SIGINT or SIGTERM."""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path
from typing import Any

from dressage import errors
from dressage.client.discovery import find_local_server
from dressage.local.stack import LocalStack


def serve(
    data_dir: Path,
    *,
    address: str,
    token: str | None,
    api_base: str | None,
    metrics: str | None = None,
    recordings: Path | None = None,
) -> None:
    """Serves until a signal; running sessions are stopped at a checkpoint and go on with the next server.

    :param metrics: host:port of the metrics for Prometheus; none if not set.
    :raises FailedPrecondition: if a server runs on the data folder already.
    """
    running = find_local_server(data_dir)
    if running is not None:
        raise errors.FailedPrecondition(
            f"a server runs on {data_dir} already, at {running.address} (process {running.pid}); commands join it",
            reason="ALREADY_SERVING",
            metadata={"address": running.address, "pid": str(running.pid)},
        )
    given = {"address": address, "token": token, "api_base": api_base, "metrics": metrics, "recordings": recordings}
    asyncio.run(_serve(data_dir, given))


async def _serve(data_dir: Path, given: dict[str, Any]) -> None:
    loop, stopping = asyncio.get_running_loop(), asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopping.set)
    stack = await LocalStack.start(data_dir, **given, log=sys.stderr)
    try:
        print(f"serving on {stack.address}, data in {data_dir}; Ctrl-C stops", flush=True)
        await stopping.wait()
        print("stopping", flush=True)
    finally:
        await stack.stop()
