"""`dressage gc`: removal of what the server's retention settings no longer keep."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import Any

from dressage.api.v1 import maintenance_service_pb2 as pb
from dressage.api.v1 import session_pb2
from dressage.cli import output
from dressage.local.connection import Connection, ServerOptions, execute
from dressage.sdk.texts import quantity, short

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


def collect(server: ServerOptions, *, dry_run: bool, as_json: bool, force: bool = False) -> None:
    """Remove garbage, or show what would be removed, and what is refused.

    :param force: remove also what is refused.
    """

    async def work(connection: Connection) -> _Collection:
        answers = [part async for part in connection.client.collect_garbage(validate_only=dry_run, force=force)]
        parts = [part for part in answers if not part.refusal]
        removed = {part.name for part in parts if part.kind == pb.GARBAGE_KIND_DELETED_SESSION}
        listed = connection.client.list_sessions(show_deleted=True, page_size=1000)
        waiting = [entry async for entry in listed if entry.HasField("delete_time") and entry.name not in removed]
        waiting.sort(key=lambda entry: entry.purge_time.ToMicroseconds())
        return _Collection(parts, waiting, [part for part in answers if part.refusal])

    collected = execute(server, work, start="records" if dry_run else "own")
    if as_json:
        parts = [output.message_dict(part) for part in collected.parts]
        waiting = [{"name": entry.name, "purge_time": _day(entry)} for entry in collected.waiting]
        refused = [output.message_dict(part) for part in collected.refused]
        output.print_json({"dry_run": dry_run, "removed": parts, "kept": waiting, "refused": refused})
        return
    if not collected.parts:
        print("nothing to remove")
    else:
        print("would remove:" if dry_run else "removed:")
        # Rows are counted as they are deleted.
        columns = ("what", "number", "artifacts", "bytes", "rows")[: 4 if dry_run else 5]
        output.print_table(columns, [row[: len(columns)] for row in _rows(collected.parts)], empty="nothing")
    for refusal, number in Counter(part.refusal for part in collected.refused).items():
        of = quantity(number, "session") if any(part.name for part in collected.refused) else "everything"
        print(f"\nnot removed, {of}: {refusal}")
    if collected.waiting:
        first, count = collected.waiting[0], quantity(len(collected.waiting), "deleted session")
        verb = "is" if len(collected.waiting) == 1 else "are"
        print(
            f"\n{count} {verb} kept for now, {short(first.name)} until {_day(first)}; to restore it: dressage sessions undelete"
        )


@dataclass(frozen=True)
class _Collection:
    """What is removed.

    :param waiting: deleted sessions whose grace period has not ended, the first to be removed at the beginning.
    :param refused: what is not removed, because the database or the clock may be wrong.
    """

    parts: list[pb.CollectGarbageResponse]
    waiting: list[session_pb2.Session]
    refused: list[pb.CollectGarbageResponse]


def _day(session: session_pb2.Session) -> str:
    return session.purge_time.ToDatetime().strftime("%Y-%m-%d %H:%M UTC")


def _rows(parts: list[pb.CollectGarbageResponse]) -> list[tuple[Any, ...]]:
    totals: dict[pb.GarbageKind.ValueType, _Total] = defaultdict(_Total)
    for part in parts:
        totals[part.kind].add(part)
    return [
        (_NAMES.get(kind, "other"), f"{total.parts:,}", f"{total.artifacts:,}", f"{total.bytes:,}", f"{total.rows:,}")
        for kind, total in sorted(totals.items())
    ]
