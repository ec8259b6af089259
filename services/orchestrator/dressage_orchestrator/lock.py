"""One server per data folder: two on the same SQLite file would both run the same live step."""

from __future__ import annotations

import json
import os
from pathlib import Path

from dressage.artifacts.atomic import write_bytes
from dressage.errors import FailedPrecondition
from filelock import FileLock, Timeout

LOCK_NAME = "orchestrator.lock"
FACTS_NAME = "orchestrator.json"


class DataFolderLock:
    """Holds a data folder for this process; the kernel lets go of it when the process dies, however it dies."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        # Taken in one thread and given back in another.
        self._lock = FileLock(folder / LOCK_NAME, thread_local=False)

    def acquire(self) -> None:
        """Takes the folder.

        :raises FailedPrecondition: when another server has it, naming its process and address.
        """
        self._folder.mkdir(parents=True, exist_ok=True)
        try:
            self._lock.acquire(timeout=0)
        except Timeout:
            raise FailedPrecondition(_occupied(self._folder), reason="DATA_FOLDER_IN_USE") from None
        (self._folder / FACTS_NAME).unlink(missing_ok=True)

    def announce(self, address: str) -> None:
        """Writes who serves the folder and where, for those who come second."""
        facts = json.dumps({"address": address, "pid": os.getpid()}).encode()
        write_bytes(self._folder / FACTS_NAME, facts)

    def release(self) -> None:
        """Gives the folder back."""
        (self._folder / FACTS_NAME).unlink(missing_ok=True)
        self._lock.release()


def _occupied(folder: Path) -> str:
    try:
        facts = json.loads((folder / FACTS_NAME).read_text())
        who = f"process {facts['pid']} at {facts['address']}"
    except (OSError, ValueError, KeyError):
        who = "another process that is just starting or stopping"
    return f"{folder} is served by {who}; use that server, or give this one a data folder of its own"
