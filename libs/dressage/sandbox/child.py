"""Entry point of a sandboxed process: locks down, then imports the target and calls it with the channel.

Started by file name with one argument, a JSON object: ``parent`` (process id), ``target`` ("module:function", or null where
the first message names it), ``preload`` (modules to import before that message), ``read_fd``, ``write_fd``, ``max_bytes``,
``import_path`` (the value of sys.path), ``scratch``, ``read_only``, ``hidden``, ``devices``, ``cpus``, ``limits``,
``unsandboxed``, ``heartbeat_fd`` (of `dressage.sandbox.heartbeat`, or null), ``companion`` (descriptors of
the channel to a companion, to read from and to write to, or an empty list).
Site initialisation is off, so that no .pth file runs before the lock-down.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

EXIT_NO_SANDBOX = 97
EXIT_NO_MEMORY = 98


def main() -> None:
    """Run the target; the exit code reports the result to the parent."""
    config = json.loads(sys.argv[1])
    sys.argv = [sys.argv[0]]
    sys.path[:] = config["import_path"]

    from dressage.sandbox.lockdown import lock_down
    from dressage.sandbox.pipe import Channel

    try:
        lock_down(config)
    except OSError as error:
        print(f"the sandbox could not be set up: {error}", file=sys.stderr, flush=True)
        # At once: nothing of this process may run on without the barriers.
        os._exit(EXIT_NO_SANDBOX)

    import importlib

    if config["heartbeat_fd"] is not None:
        from dressage.sandbox import heartbeat

        heartbeat.attach(config["heartbeat_fd"])
    if config["companion"]:
        from dressage.sandbox.pipe import attach_companion

        attach_companion(*config["companion"])
    channel = Channel(config["read_fd"], config["write_fd"], max_bytes=config["max_bytes"])
    try:
        for name in config["preload"]:
            importlib.import_module(name)
        target = config["target"] or _receive_target(channel)
        if target is None:
            return
        module_name, _, function_name = target.partition(":")
        getattr(importlib.import_module(module_name), function_name)(channel)
    except MemoryError:
        sys.stderr.flush()
        # Not `print`, which may need memory itself.
        os.write(2, b"MemoryError: out of memory\n")
        os._exit(EXIT_NO_MEMORY)
    channel.close()


def _receive_target(channel: Any) -> str | None:
    """Wait for the first message, which names the target; None if the parent closes the channel instead."""
    from dressage.sandbox.pipe import ChannelClosed

    try:
        return str(channel.recv(timeout=None)["target"])
    except ChannelClosed:
        return None


if __name__ == "__main__":
    main()
