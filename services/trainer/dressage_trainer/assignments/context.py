"""What the code of an assignment gets from the supervisor: the stream, its folder, and the events that end it early."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from dressage.api.internal.v1 import run_service_pb2 as pb
from dressage.artifacts.store import Grant

from dressage_trainer.evaluation.player_pool import PlayerPool
from dressage_trainer.lease.sandboxes import Sandboxes
from dressage_trainer.lease.work import WorkStream
from dressage_trainer.speed.compiled import CompiledCache, Fillings


@dataclass(frozen=True)
class AssignmentContext:
    """One assignment under way.

    :param work: stream to the orchestrator.
    :param assignment: the assignment.
    :param scratch: fresh folder of this assignment alone; it is removed once the assignment has ended.
    :param terminate: set on SIGTERM and near the deadline: store what is needed to resume, and return None.
    :param cancelled: set when the orchestrator cancels this assignment or stops the trainer: return None at once.
    :param sandboxes: starts sandboxed processes, and keeps spare ones between assignments.
    :param allow_unsandboxed: run generated code even where the kernel lacks a sandbox.
    :param compiled: compiled updates of earlier assignments.
    :param fillings: adds to them beside other work.
    :param players: players of candidates that stay warm over the lease; None: an evaluation starts its own.
    """

    work: WorkStream
    assignment: pb.Assignment
    scratch: Path
    terminate: asyncio.Event
    cancelled: asyncio.Event
    sandboxes: Sandboxes
    allow_unsandboxed: bool = False
    compiled: CompiledCache | None = None
    fillings: Fillings | None = None
    players: PlayerPool | None = None

    def report(self, item: str, **body: Any) -> None:
        """Queue a report about this assignment; none is queued once the assignment is cancelled.

        :param item: what the report is about (see ``Report.item``); empty for what is not kept.
        :param body: the report's body by the name of its field, as ``progress=pb.ProgressReport(...)``.
        """
        if not self.cancelled.is_set():
            self.work.report(pb.Report(assignment=self.assignment.id, item=item, **body))

    def finished(self, item: str) -> bool:
        """Return whether an earlier attempt's report of this item was accepted."""
        return item in self._finished_items

    @cached_property
    def _finished_items(self) -> frozenset[str]:
        return frozenset(self.assignment.finished_items)

    async def grants(self, *, put: Sequence[str] = (), get: Sequence[str] = ()) -> dict[str, Grant]:
        """Ask where to put and get files of this assignment; `files.put_files` and `files.get_file` take this context.

        :param put: keys relative to the assignment.
        :param get: keys relative to the assignment, or full ones below its session.
        :returns: a grant by key.
        :raises FailedPrecondition: if the orchestrator refuses.
        :raises Unavailable: if it does not answer in time.
        """
        return await self.work.grants(self.assignment.id, put=put, get=get)
