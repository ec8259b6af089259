"""A local copy of the objects with our labels: list, watch as a hint, list again.

Watches lose events now and then, in silence (a proxy cuts a connection, a version expires), so each watch lasts for a
bounded time only and is followed by a full list.
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
    """The objects of a kind.

    :param seconds: how long a watch lasts before all is listed again.
    :param changed: called with each object that changed, and with True when it is gone.
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
        """Takes stock; tells what changed.

        :raises ClusterError: when the server does not answer or refuses.
        """
        found, self._version = await self._client.all(self._kind, self._selector)
        before = self.items
        self.items = {item["metadata"]["name"]: item for item in found}
        self.lists += 1
        for name, item in self.items.items():
            if _version(before.get(name)) != _version(item):
                self._changed(item, False)
        for name in before.keys() - self.items.keys():
            self._changed(before[name], True)

    async def run(self) -> None:
        """Watches and lists in turn until cancelled. Call `list` before."""
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
                # Something unheard of in an object must not end the only eyes that we have.
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
            if error.status != 410:  # the version is too old: no news, the list follows
                raise


def _version(item: Json | None) -> Any:
    return item["metadata"].get("resourceVersion") if item else None
