"""Where the data of this machine lives, and whether a server runs on it.

A server of one machine writes `server.json` ({address, pid, token}) into its data folder once it answers, and removes it
when it stops. After a crash the file stays behind, so it is believed only if its process lives and its port accepts. Only
the user of the server may read the file; who can read it may call the server.
"""

from __future__ import annotations

import json
import os
import socket
from dataclasses import dataclass, field
from pathlib import Path

from dressage import errors
from dressage.addresses import is_loopback, split_address

SERVER_FILE = "server.json"
_PROBE_SECONDS = 1.0


@dataclass(frozen=True)
class LocalServer:
    """A server that runs on this machine."""

    address: str
    pid: int
    token: str | None = field(default=None, repr=False)
    """The bearer token of its public API."""


def find_local_server(data_dir: Path) -> LocalServer | None:
    """The server that runs on a data folder, or None (no file, a dead process, a closed port)."""
    try:
        entry = json.loads((data_dir / SERVER_FILE).read_text(encoding="utf-8"))
        server = LocalServer(str(entry["address"]), int(entry["pid"]), entry.get("token"))
    except (FileNotFoundError, NotADirectoryError, PermissionError, ValueError, KeyError, TypeError):
        return None
    return server if _process_lives(server.pid) and _port_accepts(server.address) else None


def local_token(address: str, data_dir: Path) -> str | None:
    """The token of the server at an address, if it is the one that runs on a data folder of this machine; else None."""
    server = find_local_server(data_dir)
    if server is None:
        return None
    try:
        (host, port), (own_host, own_port) = (split_address(a.rpartition("://")[2]) for a in (address, server.address))
    except errors.InvalidArgument:
        return None
    same = host == own_host or (is_loopback(host) and is_loopback(own_host))
    return server.token if same and port == own_port else None


def _process_lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # another user's process: it lives
        return True
    return True


def _port_accepts(address: str) -> bool:
    try:
        with socket.create_connection(split_address(address), timeout=_PROBE_SECONDS):
            return True
    except (OSError, errors.InvalidArgument):
        return False
