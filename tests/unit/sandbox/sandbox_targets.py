"""What the sandbox tests run inside the sandbox: one function per kind of behaviour."""

import os
import sys


def echo(channel):
    channel.send({"echo": channel.recv(timeout=10)})


def run_source(channel):
    """Run the source sent, and send back what it left in ``result``, or the exception it raised."""
    scope = {"result": None}
    request = channel.recv(timeout=10)
    try:
        exec(
            request["source"],
            {"__name__": "hostile", **scope, "request": request, "channel": channel, "out": scope},
        )
    except Exception as error:
        channel.send({"error": type(error).__name__, "text": str(error)})
        return
    channel.send({"result": scope["result"]})


def modules(channel):
    channel.send({"modules": sorted(sys.modules), "environ": dict(os.environ)})
