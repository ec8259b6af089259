"""What a training uploads while it runs, in an order that loses nothing: policies at their marks before a later checkpoint."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Never

from dressage_trainer.assignments.delivery import StagedCheckpoint

Upload = Callable[[], Awaitable[None]]


class Outbox:
    """Uploads one thing after another. Of checkpoints that wait, only the newest is kept.

    Nothing bounds the uploads that wait but the assignment: there are as many as it has evaluations.

    :param store: uploads and reports a checkpoint.
    """

    def __init__(self, store: Callable[[StagedCheckpoint], Awaitable[None]]) -> None:
        self._store = store
        self._uploads: list[Upload] = []
        self._checkpoint: StagedCheckpoint | None = None
        self._more, self._empty = asyncio.Event(), asyncio.Event()
        self._empty.set()

    def put(self, upload: Upload) -> None:
        """Add an upload behind those that wait."""
        self._uploads.append(upload)
        self._wake()

    def put_checkpoint(self, staged: StagedCheckpoint) -> None:
        """Add a checkpoint, in place of one that waits; it is stored after all uploads that wait now."""
        if self._checkpoint is not None:
            self._checkpoint.discard()
        self._checkpoint = staged
        self._wake()

    async def run(self) -> Never:
        """Upload what is put; raises what an upload raises."""
        while True:
            await self._more.wait()
            self._more.clear()
            # Taken together: whatever came before the checkpoint is among these uploads or already stored.
            uploads, self._uploads = self._uploads, []
            staged, self._checkpoint = self._checkpoint, None
            for upload in uploads:
                await upload()
            if staged is not None:
                await self._store(staged)
            if self._uploads or self._checkpoint is not None:
                self._more.set()
            else:
                self._empty.set()

    async def flush(self) -> None:
        """Wait until nothing waits and nothing is under way. `run` must be running."""
        await self._empty.wait()

    def _wake(self) -> None:
        self._empty.clear()
        self._more.set()
