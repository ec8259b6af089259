"""What the sandbox tests run inside the sandbox."""

import os
import sys
import time


def echo(channel):
    channel.send({"echo": channel.recv(timeout=20)})


def open_devices(channel):
    """Report which of the given paths can be opened for reading and writing."""
    channel.send({"opened": [_opens(path) for path in channel.recv(timeout=30)["paths"]]})


def _opens(path):
    try:
        os.close(os.open(path, os.O_RDWR))
    except OSError:
        return False
    return True


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


def _outcome(run):
    """What a program did, or the name of the exception that it raised."""
    try:
        did = run()
    except BaseException as error:
        return type(error).__name__
    return f"did: {did!r}"[:200] if did else "nothing"


def run_sources(channel):
    """Run programs one after another, and send back what each did or raised."""
    request = channel.recv(timeout=20)
    outcomes = {}
    for name, source in request["sources"].items():

        def run(source=source):
            out = {}
            exec(source, {"out": out, "request": request, "channel": channel})
            return out.get("did")

        outcomes[name] = _outcome(run)
    channel.send({"outcomes": outcomes})


def run_generated(channel):
    """Run bodies of functions in the namespace of generated code, without the lint, as `run_sources`."""
    import textwrap

    import numpy as np
    from dressage.contracts import execute

    outcomes = {}
    names = execute.ALLOWED_BUILTINS | execute.CLASS_BUILTINS | execute.EXCEPTIONS
    for name, source in channel.recv(timeout=20)["sources"].items():

        def run(source=source):
            scope = execute.module_globals(names, {"np": np})
            body = textwrap.indent(source.strip(), "    ")
            exec(compile(f"def attack():\n{body}\n", execute.FILENAME, "exec"), scope)
            return scope["attack"]()

        outcomes[name] = _outcome(run)
    channel.send({"outcomes": outcomes})


def call_raw(channel):
    """Make system calls without a wrapper; send back those that succeeded, and those that this machine lacks."""
    import ctypes
    import platform

    from corpus import CALLS
    from dressage.sandbox.syscalls import MACHINES

    channel.recv(timeout=20)
    libc, numbers = ctypes.CDLL(None, use_errno=True), MACHINES[platform.machine()].numbers
    libc.syscall.restype = ctypes.c_long
    known = [name for name in CALLS if name in numbers]
    succeeded = [name for name in known if libc.syscall(numbers[name], 0, 0, 0, 0, 0, 0) != -1]
    channel.send({"known": known, "succeeded": succeeded})
