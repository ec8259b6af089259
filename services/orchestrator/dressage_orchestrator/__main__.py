"""``python -m dressage_orchestrator``: settings from the environment, then serve until SIGTERM.

``python -m dressage_orchestrator migrate`` creates or upgrades the database's tables instead, and exits.
"""

from __future__ import annotations

import asyncio
import sys

from dressage.errors import DressageError
from dressage.serving import logs
from dressage.serving.server import run_until_signal
from dressage.serving.settings import load

from dressage_orchestrator.database.engine import Database, sqlite_url
from dressage_orchestrator.database.migrate import newest
from dressage_orchestrator.lock import DataFolderLock
from dressage_orchestrator.settings import Settings
from dressage_orchestrator.wiring import start

_PATIENCE_SECONDS = 60.0  # an init container may start before its database does


async def serve(settings: Settings) -> None:
    """Serve until a signal."""
    await run_until_signal(await start(settings))


def migrate_database(settings: Settings) -> str:
    """Upgrade the database of the settings to this version; returns the revision."""
    folder = settings.data_dir.resolve()
    if settings.database_url is not None and not settings.database_url.startswith("sqlite"):
        Database(settings.database_url, patience=_PATIENCE_SECONDS).close()
        return newest()
    lock = DataFolderLock(folder)
    lock.acquire()
    try:
        Database(settings.database_url or sqlite_url(folder / "dressage.db")).close()
    finally:
        lock.release()
    return newest()


def main() -> int:
    """Run the program; returns the exit code."""
    if sys.argv[1:] not in ([], ["migrate"]):
        print("usage: python -m dressage_orchestrator [migrate]", file=sys.stderr)
        return 2
    settings = load(Settings)
    logs.configure(format=settings.log_format, level=settings.log_level)
    try:
        if sys.argv[1:]:
            print(f"the database has schema {migrate_database(settings)}")
            return 0
        asyncio.run(serve(settings))
    except DressageError as error:
        print(f"error: {error.message}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
