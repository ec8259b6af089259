"""A local cache of the objects with our labels: list, watch, list again.

Watches may lose events without an error, for example when a proxy closes a connection or a version expires. Therefore each
watch has a bounded duration and is followed by a full list.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import structlog

from dressage_orchestrator.launch.kubernetes.client import ClusterClient, ClusterError, Json, Kind

_FIRST_WAIT_SECONDS = 1.0
_LONGEST_WAIT_SECONDS = 30.0


class Reflector:
    """Cache of the objects of one kind.

    :param seconds: duration of a watch before the next full list.
    :param changed: called with each changed object, and with True if it was deleted.
    """

    def __init__(
        self, client: ClusterClient, kind: Kind, selector: str, *, seconds: float, changed: Callable[[Json, bool], None]
    ) -> None:
        self._client = client
        self._kind = kind
        self._selector = selector
        self._seconds = seconds
        self._changed = changed
        self._version = ""
        self._log = structlog.get_logger("dressage.kubernetes").bind(kind=kind)
        self.items: dict[str, Json] = {}
        self.lists = 0

    async def list(self) -> None:
        """List all objects and report changes.

        :raises ClusterError: when the server does not answer or denies access.
        """
        objects, self._version = await self._client.all(self._kind, self._selector)
        before = self.items
        self.items = {item["metadata"]["name"]: item for item in objects}
        self.lists += 1
        for name, item in self.items.items():
            if _version(before.get(name)) != _version(item):
                self._changed(item, False)
        for name in before.keys() - self.items.keys():
            self._changed(before[name], True)

    async def run(self) -> None:
        """Watch and list in turn until cancelled. Call `list` first."""
        wait = _FIRST_WAIT_SECONDS
        while True:
            try:
                await self._watch()
                await self.list()
                wait = _FIRST_WAIT_SECONDS
            except ClusterError as error:
                self._log.warning("list and watch failed", status=error.status, error=error.message)
                await asyncio.sleep(wait)
                wait = min(wait * 2, _LONGEST_WAIT_SECONDS)
                self._version = ""  # list first
            except Exception:
                # An unexpected object must not stop the observation of all others.
                self._log.exception("list and watch failed")
                await asyncio.sleep(_LONGEST_WAIT_SECONDS)
                self._version = ""

    async def _watch(self) -> None:
        if not self._version:
            return
        seconds = max(1, round(self._seconds))
        try:
            async for kind, item in self._client.watch(self._kind, self._selector, self._version, seconds=seconds):
                name = item["metadata"]["name"]
                if kind == "DELETED":
                    self.items.pop(name, None)
                else:
                    self.items[name] = item
                self._changed(item, kind == "DELETED")
        except ClusterError as error:
            if error.status != 410:  # the version is too old; the following list replaces the watch
                raise


def _version(item: Json | None) -> Any:
    return item["metadata"].get("resourceVersion") if item else None
