"""`MaintenanceService`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from dressage.api.v1 import maintenance_service_pb2 as pb

from dressage_orchestrator import threads
from dressage_orchestrator.retention import Retention


class MaintenanceServicer:
    """Removes what is no longer kept."""

    def __init__(self, retention: Retention) -> None:
        self._retention = retention

    async def CollectGarbage(
        self, request: pb.CollectGarbageRequest, context: Any
    ) -> AsyncIterator[pb.CollectGarbageResponse]:
        parts = self._retention.collect(validate_only=request.validate_only, force=request.force)
        while (part := await threads.run(threads.REQUESTS, next, parts, None)) is not None:
            yield part
