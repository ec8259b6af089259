"""Contexts of assignments without an orchestrator: reports in a list, artifacts in a folder."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

from dressage.artifacts.store import Grant
from dressage_trainer.assignments.context import AssignmentContext
from dressage_trainer.evaluation.player_pool import PlayerPool
from dressage_trainer.lease.sandboxes import Sandboxes


class FakeWork:
    """The part of `WorkStream` that assignments use."""

    def __init__(self, store):
        self.store, self.reports = store, []

    def report(self, report):
        self.reports.append(report)

    async def grants(self, assignment, *, put=(), get=()):
        return {key: Grant(url=(self.store / key).as_uri(), headers={}) for key in (*put, *get)}

    def items(self):
        """Reports by item, in their order; those without an item left out."""
        return {report.item: report for report in self.reports if report.item}


@asynccontextmanager
async def lease(folder):
    """A function that makes the context of one assignment after another; they share players, store and reports."""
    sandboxes = Sandboxes(folder / "sandboxes")
    players, work = PlayerPool(sandboxes), FakeWork(folder / "store")

    def context(assignment):
        scratch = folder / f"assignment-{assignment.id}"
        scratch.mkdir(parents=True, exist_ok=True)
        return AssignmentContext(
            work=work,
            assignment=assignment,
            scratch=scratch,
            terminate=asyncio.Event(),
            cancelled=asyncio.Event(),
            sandboxes=sandboxes,
            players=players,
        )

    try:
        yield context
    finally:
        await players.close()
        sandboxes.close()
