"""Entry of a sandboxed process: lock down, then import the target and call it with the channel.

Started by file name with one argument, a JSON object: ``parent`` (process id), ``target`` ("module:function"),
``read_fd``, ``write_fd``, ``max_bytes``, ``import_path`` (what sys.path will be), ``scratch``, ``read_only``,
``devices``, ``cpus``, ``limits``, ``unsandboxed``.
Site initialisation is off, so that no .pth file runs before the barriers are up.
"""

from __future__ import annotations

import json
import os
import sys

EXIT_NO_SANDBOX = 97
EXIT_NO_MEMORY = 98


def main() -> None:
    """Run the target; the exit code tells the parent what became of it."""
    config = json.loads(sys.argv[1])
    sys.argv = [sys.argv[0]]
    sys.path[:] = config["import_path"]

    from dressage.sandbox.lockdown import lock_down
    from dressage.sandbox.pipe import Channel

    try:
        lock_down(config)
    except OSError as error:
        print(f"the sandbox could not be set up: {error}", file=sys.stderr, flush=True)
        os._exit(EXIT_NO_SANDBOX)

    import importlib

    channel = Channel(config["read_fd"], config["write_fd"], max_bytes=config["max_bytes"])
    module_name, _, function_name = config["target"].partition(":")
    try:
        getattr(importlib.import_module(module_name), function_name)(channel)
    except MemoryError:
        sys.stderr.flush()
        os.write(2, b"MemoryError: out of memory\n")
        os._exit(EXIT_NO_MEMORY)
    channel.close()


if __name__ == "__main__":
    main()
