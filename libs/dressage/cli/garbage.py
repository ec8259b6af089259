"""`dressage gc`: removal of what the server's retention settings no longer keep."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import Any

from dressage.api.v1 import maintenance_service_pb2 as pb
from dressage.cli import output
from dressage.local.connection import Connection, ServerOptions, execute

_NAMES = {
    pb.GARBAGE_KIND_ENDED_SESSION: "ended sessions, which can be undeleted",
    pb.GARBAGE_KIND_DELETED_SESSION: "deleted sessions",
    pb.GARBAGE_KIND_HISTORY: "histories of ended sessions",
    pb.GARBAGE_KIND_EVENTS: "events of ended sessions",
    pb.GARBAGE_KIND_ARTIFACTS: "artifacts without a session",
    pb.GARBAGE_KIND_BENCHMARK: "benchmarks without sessions",
    pb.GARBAGE_KIND_REQUEST_IDS: "request ids",
    pb.GARBAGE_KIND_INTERRUPTED_WRITES: "interrupted writes",
}


@dataclass
class _Total:
    """What was removed of one kind."""

    parts: int = 0
    artifacts: int = 0
    bytes: int = 0
    rows: int = 0

    def add(self, part: pb.CollectGarbageResponse) -> None:
        self.parts += 1
        self.artifacts += part.artifacts
        self.bytes += part.bytes
        self.rows += part.rows


def collect(server: ServerOptions, *, dry_run: bool, as_json: bool) -> None:
    """Remove garbage, or show what would be removed."""

    async def work(connection: Connection) -> list[pb.CollectGarbageResponse]:
        return [part async for part in connection.client.collect_garbage(validate_only=dry_run)]

    parts = execute(server, work, start="records" if dry_run else "own")
    if as_json:
        output.print_json({"dry_run": dry_run, "removed": [output.message_dict(part) for part in parts]})
        return
    print("would remove:" if dry_run else "removed:")
    output.print_table(("what", "number", "artifacts", "bytes", "rows"), _rows(parts), empty="nothing")


def _rows(parts: list[pb.CollectGarbageResponse]) -> list[tuple[Any, ...]]:
    totals: dict[pb.GarbageKind.ValueType, _Total] = defaultdict(_Total)
    for part in parts:
        totals[part.kind].add(part)
    return [
        (_NAMES.get(kind, "other"), f"{total.parts:,}", f"{total.artifacts:,}", f"{total.bytes:,}", f"{total.rows:,}")
        for kind, total in sorted(totals.items())
    ]
