"""`dressage serve`: the local stack until SIGINT or SIGTERM."""

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
    tls_cert: Path | None = None,
    tls_key: Path | None = None,
    metrics: str | None = None,
    recordings: Path | None = None,
) -> None:
    """Serve until a signal. Running sessions stop at a checkpoint, and the next server resumes them.

    :param tls_cert: certificate chain (PEM) of the address; needs its key.
    :param metrics: host:port of the Prometheus metrics; None: no metrics.
    :raises FailedPrecondition: if another server runs on the data folder.
    """
    running = find_local_server(data_dir)
    if running is not None:
        raise errors.FailedPrecondition(
            f"a server runs on {data_dir} already, at {running.address} (process {running.pid}); commands use it",
            reason="ALREADY_SERVING",
            metadata={"address": running.address, "pid": str(running.pid)},
        )
    if (tls_cert is None) != (tls_key is None):
        missing = "--tls-key" if tls_key is None else "--tls-cert"
        raise errors.InvalidArgument(field=missing, problem="missing", expected="both --tls-cert and --tls-key")
    tls = (tls_cert, tls_key) if tls_cert and tls_key else None
    settings = {"address": address, "token": token, "api_base": api_base, "metrics": metrics, "recordings": recordings}
    asyncio.run(_serve(data_dir, {**settings, "tls": tls}))


async def _serve(data_dir: Path, settings: dict[str, Any]) -> None:
    loop, shutdown_requested = asyncio.get_running_loop(), asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, shutdown_requested.set)
    stack = await LocalStack.start(data_dir, **settings, log=sys.stderr)
    try:
        print(f"serving on {stack.public}, data in {data_dir}; press Ctrl-C to stop", flush=True)
        await shutdown_requested.wait()
        print("stopping", flush=True)
    finally:
        await stack.stop()
