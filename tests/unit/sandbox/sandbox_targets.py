"""What the sandbox tests run inside the sandbox."""

import os
import sys
import time


def echo(channel):
    channel.send({"echo": channel.recv(timeout=20)})


def run_source(channel):
    """Run the source sent, and send back what it left in ``out``, or the exception it raised."""
    request = channel.recv(timeout=20)
    out = {}
    try:
        exec(request["source"], {"out": out, "request": request, "channel": channel})
    except Exception as error:
        channel.send({"error": type(error).__name__, "text": str(error)})
        return
    channel.send({"out": out})


def report_modules(channel):
    channel.send({"modules": sorted(sys.modules)})


def sleep(channel):
    channel.send({"pid": os.getpid()})
    time.sleep(600)


def fail(channel):
    print("about to fail")
    raise ValueError("on purpose")
