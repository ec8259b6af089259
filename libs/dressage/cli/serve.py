"""`dressage serve`: the local stack until SIGINT or SIGTERM."""

from __future__ import annotations

import asyncio
import signal
import socket
import sys
import webbrowser
from pathlib import Path
from typing import Any
from urllib.parse import quote

from dressage import errors
from dressage.client.discovery import SERVER_FILE, find_local_server
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
    console: str | None = None,
    open_browser: bool = False,
) -> None:
    """Serve until a signal. Running sessions stop at a checkpoint, and the next server resumes them.

    :param tls_cert: certificate chain (PEM) of the address; needs its key.
    :param console: host:port of the console, or `off`; None: the port after the API's, or a free one if that is in use.
    :param open_browser: open the console in a browser.
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
    settings["console"] = None if console == "off" else console or default_console(address)
    asyncio.run(_serve(data_dir, {**settings, "tls": tls}, open_browser=open_browser))


def default_console(address: str) -> str:
    """The console's address next to that of the API: the next port, or any free one if that is in use."""
    host, _, port = address.rpartition(":")
    chosen = int(port) + 1 if port.isdigit() and 0 < int(port) < 65535 else 0
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    if chosen:
        try:
            socket.create_server((host.strip("[]"), chosen), family=family).close()
        except OSError:
            chosen = 0
    return f"{host}:{chosen}"


def console_line(stack: LocalStack, data_dir: Path, output: Any) -> str:
    """The line that leads to the console. Only a terminal gets the token: files and pipes are kept and read by others."""
    if output.isatty():
        return f"console: {console_url(stack)}"
    return f"console: {stack.console}, with the token in {data_dir / SERVER_FILE}, which only you can read"


def console_url(stack: LocalStack) -> str:
    """Address of the console for a browser. The token is in the fragment, which browsers do not send or log."""
    return f"{stack.console}/#token={quote(stack.token, safe='')}"


async def _serve(data_dir: Path, settings: dict[str, Any], *, open_browser: bool) -> None:
    loop, shutdown_requested = asyncio.get_running_loop(), asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, shutdown_requested.set)
    stack = await LocalStack.start(data_dir, **settings, log=sys.stderr)
    try:
        print(f"serving on {stack.public}, data in {data_dir}; press Ctrl-C to stop", flush=True)
        if stack.console is not None:
            print(console_line(stack, data_dir, sys.stdout), flush=True)
            if open_browser:
                await asyncio.to_thread(webbrowser.open, console_url(stack))
        await shutdown_requested.wait()
        print("stopping", flush=True)
    finally:
        await stack.stop()
