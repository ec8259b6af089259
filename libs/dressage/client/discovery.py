"""Where the data of this machine lives, and whether a server runs on it.

A server of one machine writes `server.json` ({address, pid, token}) into its data folder once it answers, and removes it
when it stops. After a crash the file stays behind, and another process may get the process id and the port: it would be
sent the token. So the file is believed only while a server holds the lock of the folder. The kernel releases the lock when
the server's process ends, and the next server removes the file before it writes its own. Only the user of the server may
read the file; who can read it may call the server.
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
import stat
from dataclasses import dataclass, field
from pathlib import Path

from dressage import errors
from dressage.addresses import is_loopback, split_address

SERVER_FILE = "server.json"
LOCK_FILE = "orchestrator.lock"
"""The lock of a data folder, held with `flock`."""
_PROBE_SECONDS = 1.0
_MAX_BYTES = 65_536


@dataclass(frozen=True)
class LocalServer:
    """A server that runs on this machine."""

    address: str
    pid: int
    token: str | None = field(default=None, repr=False)
    """The bearer token of its public API."""


def find_local_server(data_dir: Path) -> LocalServer | None:
    """The server that runs on a data folder, or None (no file, one of another user or that others can read, no server)."""
    # First the lock: a file that is read while it is held was not left behind by an earlier server.
    if not _is_locked(data_dir / LOCK_FILE):
        return None
    try:
        entry = json.loads(_read_private(data_dir / SERVER_FILE))
        server = LocalServer(str(entry["address"]), int(entry["pid"]), entry.get("token"))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    return server if _process_lives(server.pid) and _port_accepts(server.address) else None


def _is_locked(path: Path) -> bool:
    """Whether a process holds the lock. A free lock is taken for a moment, which the lock's owner waits for."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:  # held; or a file system without locks, where the process and the port have to do
        return True
    else:
        return False
    finally:
        os.close(descriptor)


def _read_private(path: Path) -> bytes:
    """The content of a file of this user that no other user can read.

    :raises PermissionError: for another file.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        own = status.st_uid == os.geteuid() or os.geteuid() == 0
        if not own or not stat.S_ISREG(status.st_mode) or stat.S_IMODE(status.st_mode) & 0o077:
            raise PermissionError(f"{path}: not a private file of this user")
        return file.read(_MAX_BYTES)


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
