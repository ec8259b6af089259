"""The lock of a data folder: two servers on the same SQLite file would execute the same workflow step."""

from __future__ import annotations

import json
import os
from pathlib import Path

from dressage.artifacts.atomic import PRIVATE_FILE, make_private_folder, write_bytes
from dressage.client.discovery import LOCK_FILE, SERVER_FILE
from dressage.errors import FailedPrecondition
from filelock import FileLock, Timeout

_PROBE_SECONDS = 0.5
"""Time for which clients that look for a server may hold the lock."""
FACTS_NAME = "orchestrator.json"


class DataFolderLock:
    """Locks a data folder for this process; the kernel releases the lock when the process ends."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        # Acquired in one thread and released in another.
        self._lock = FileLock(folder / LOCK_FILE, mode=PRIVATE_FILE, thread_local=False)

    def acquire(self) -> None:
        """Acquire the lock.

        :raises FailedPrecondition: when another server holds it, with its process id and address.
        """
        make_private_folder(self._folder)
        try:
            self._lock.acquire(timeout=_PROBE_SECONDS)
        except Timeout:
            raise FailedPrecondition(_conflict(self._folder), reason="DATA_FOLDER_IN_USE") from None
        for name in (FACTS_NAME, SERVER_FILE):  # of a server that did not stop in order
            (self._folder / name).unlink(missing_ok=True)

    def announce(self, address: str) -> None:
        """Write process id and address of this server, for the error message of a second server."""
        facts = json.dumps({"address": address, "pid": os.getpid()}).encode()
        write_bytes(self._folder / FACTS_NAME, facts)

    def release(self) -> None:
        """Release the lock."""
        (self._folder / FACTS_NAME).unlink(missing_ok=True)
        self._lock.release()


def _conflict(folder: Path) -> str:
    try:
        facts = json.loads((folder / FACTS_NAME).read_text())
        who = f"process {facts['pid']} at {facts['address']}"
    except (OSError, ValueError, KeyError):
        who = "another process that is starting or stopping"
    return f"{folder} is in use by {who}; use that server, or choose another data folder"
