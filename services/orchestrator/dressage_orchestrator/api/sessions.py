"""`SessionService`."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

from dressage.api.v1 import session_pb2 as v1
from dressage.api.v1 import session_service_pb2 as pb
from dressage.errors import InvalidArgument, NotFound

from dressage_orchestrator import resource_names
from dressage_orchestrator.api import gate, paging
from dressage_orchestrator.api.pools import Pools
from dressage_orchestrator.api.read_masks import ReadMask
from dressage_orchestrator.database import assignments, runs, sessions
from dressage_orchestrator.database.engine import ReadTransaction
from dressage_orchestrator.database.pages import PAGE_BYTES, Page
from dressage_orchestrator.human_feedback import HumanFeedback
from dressage_orchestrator.launch.controller import RunController
from dressage_orchestrator.lifecycle.lessons import lessons
from dressage_orchestrator.service import Sessions
from dressage_orchestrator.watches import Watches

_LOG_BYTES = 65_536
# Trainers do not log the token; generated code that prints its environment would.
_RUN_TOKEN = re.compile(r"\b\d{9,15}(?:\.\d{1,9}-\d{1,9})?\.[0-9a-f]{64}\b")


class SessionServicer:
    """Creates, steers and watches sessions."""

    def __init__(
        self,
        service: Sessions,
        feedback: HumanFeedback,
        watches: Watches,
        controller: RunController,
        pages: paging.PageTokens,
        pools: Pools,
    ) -> None:
        self._service = service
        self._pools = pools
        self._pages = pages
        self._feedback = feedback
        self._watches = watches
        self._controller = controller

    async def CreateSession(self, request: pb.CreateSessionRequest, context: Any) -> v1.Session:
        return await self._service.create(request)

    async def GetSession(self, request: pb.GetSessionRequest, context: Any) -> v1.Session:
        session = resource_names.parse_session(request.name)
        return await self._service.read(lambda tx: sessions.get(tx, session))

    async def ListSessions(self, request: pb.ListSessionsRequest, context: Any) -> pb.ListSessionsResponse:
        mask = ReadMask(request.read_mask, v1.Session)
        question = ("sessions", request.show_deleted, request.state, mask.paths)
        position = self._pages.decode(request.page_token, *question)
        rows, more = await self._service.read(
            lambda tx: sessions.page(
                tx,
                limit=paging.page_size(request.page_size),
                before=tuple(position) if position else None,
                show_deleted=request.show_deleted,
                state=request.state,
                deleted_of=gate.reads_only_own(),
                whole=mask.is_set,
            )
        )
        token = self._pages.encode(rows[-1][1], *question) if more else ""
        return pb.ListSessionsResponse(sessions=[mask.apply(entry) for entry, _ in rows], next_page_token=token)

    async def DeleteSession(self, request: pb.DeleteSessionRequest, context: Any) -> v1.Session:
        return await self._service.delete(request)

    async def UndeleteSession(self, request: pb.UndeleteSessionRequest, context: Any) -> v1.Session:
        return await self._service.undelete(resource_names.parse_session(request.name))

    async def CancelSession(self, request: pb.CancelSessionRequest, context: Any) -> v1.Session:
        return await self._service.cancel(resource_names.parse_session(request.name), request.reason)

    async def ResumeSession(self, request: pb.ResumeSessionRequest, context: Any) -> v1.Session:
        return await self._service.resume(request)

    async def SteerSession(self, request: pb.SteerSessionRequest, context: Any) -> pb.SteerSessionResponse:
        await self._feedback.steer(request)
        return pb.SteerSessionResponse()

    async def ApproveSession(self, request: pb.ApproveSessionRequest, context: Any) -> v1.Session:
        return await self._feedback.approve(request)

    async def WatchSession(
        self, request: pb.WatchSessionRequest, context: Any
    ) -> AsyncIterator[pb.WatchSessionResponse]:
        session, sequence = resource_names.parse_session(request.name), _sequence(request.resume_token)
        await self._service.release(session)
        async with aclosing(self._watches.watch(session, sequence)) as changes:
            async for change in changes:
                if isinstance(change, v1.QueuePlace):
                    yield pb.WatchSessionResponse(queue=change)
                else:
                    yield pb.WatchSessionResponse(event=change, resume_token=str(change.sequence))

    async def GetIteration(self, request: pb.GetIterationRequest, context: Any) -> v1.Iteration:
        session, number = resource_names.parse_iteration(request.name)
        return await self._service.read(lambda tx: sessions.iteration(tx, session, number))

    async def ListIterations(self, request: pb.ListIterationsRequest, context: Any) -> pb.ListIterationsResponse:
        session = resource_names.parse_session(request.parent)
        after = self._pages.decode(request.page_token, "iterations", session) or 0
        size = paging.page_size(request.page_size)

        def read(tx: ReadTransaction) -> Page[v1.Iteration]:
            sessions.get(tx, session)
            return sessions.iteration_page(tx, session, after=after, limit=size)

        iterations, more = await self._service.read(read)
        token = self._pages.encode(iterations[-1].number, "iterations", session) if more else ""
        return pb.ListIterationsResponse(iterations=iterations, next_page_token=token)

    async def GetRun(self, request: pb.GetRunRequest, context: Any) -> v1.Run:
        return await self._service.read(lambda tx: runs.get(tx, request.name).run)

    async def ListRuns(self, request: pb.ListRunsRequest, context: Any) -> pb.ListRunsResponse:
        session = resource_names.parse_session(request.parent)
        after = self._pages.decode(request.page_token, "runs", session) or 0
        size = paging.page_size(request.page_size)

        def read(tx: ReadTransaction) -> Page[runs.RunRow]:
            sessions.get(tx, session)
            return runs.page(tx, session, after=after, limit=size)

        rows, more = await self._service.read(read)
        token = self._pages.encode(rows[-1].number, "runs", session) if more else ""
        return pb.ListRunsResponse(runs=[row.run for row in rows], next_page_token=token)

    async def GetAssignment(self, request: pb.GetAssignmentRequest, context: Any) -> v1.Assignment:
        return await self._service.read(lambda tx: assignments.get(tx, request.name).assignment)

    async def ListAssignments(self, request: pb.ListAssignmentsRequest, context: Any) -> pb.ListAssignmentsResponse:
        parent = request.parent
        if parent.endswith("/iterations/-"):
            session, number = resource_names.parse_session(parent.removesuffix("/iterations/-")), None
        else:
            session, number = resource_names.parse_iteration(parent)
        position = self._pages.decode(request.page_token, "assignments", parent)
        size = paging.page_size(request.page_size)

        def read(tx: ReadTransaction) -> Page[tuple[v1.Assignment, tuple[int, str]]]:
            sessions.get(tx, session)
            after = tuple(position) if position else None
            return assignments.page(tx, session, iteration=number, after=after, limit=size)

        rows, more = await self._service.read(read)
        token = self._pages.encode(rows[-1][1], "assignments", parent) if more else ""
        return pb.ListAssignmentsResponse(assignments=[entry for entry, _ in rows], next_page_token=token)

    async def ReadRunLog(self, request: pb.ReadRunLogRequest, context: Any) -> pb.ReadRunLogResponse:
        run = await self._service.read(lambda tx: runs.get(tx, request.name).run)
        limit = request.tail_bytes or _LOG_BYTES
        log = await self._controller.logs(request.name, tail_bytes=limit)
        if log is None:
            raise NotFound(_no_log(run), reason="RUN_LOG_NOT_FOUND", metadata={"run": request.name})
        text = _RUN_TOKEN.sub("[token]", log.decode("utf-8", "replace"))
        # A byte that is not UTF-8 becomes three.
        last = text.encode()[-limit:].decode("utf-8", "ignore")
        return pb.ReadRunLogResponse(text=last, truncated=len(log) >= limit)

    async def GetLineage(self, request: pb.GetLineageRequest, context: Any) -> pb.Lineage:
        session = resource_names.parse_session(request.name)

        def read(tx: ReadTransaction) -> tuple[v1.Session, list[v1.Iteration]]:
            return sessions.get(tx, session), [_facts(entry) for entry in sessions.each_iteration(tx, session)]

        return lineage(*await self._service.read(read))

    async def LabelRollout(self, request: pb.LabelRolloutRequest, context: Any) -> pb.LabelRolloutResponse:
        return await self._feedback.label(request)

    async def EstimateSession(self, request: pb.EstimateSessionRequest, context: Any) -> pb.EstimateSessionResponse:
        return await self._service.estimate(request.spec)

    async def ListPools(self, request: pb.ListPoolsRequest, context: Any) -> pb.ListPoolsResponse:
        return await self._service.read(self._pools.read)


def _no_log(run: v1.Run) -> str:
    if run.state == v1.RUN_STATE_QUEUED:
        return f"{run.name} has no log yet: it waits for a trainer"
    return f"{run.name} has no log: its trainer has not started, or its pod or log file was deleted"


def _sequence(token: str) -> int:
    if not token:
        return 0
    if not (token.isascii() and token.isdigit() and len(token) < 19):
        raise InvalidArgument(field="resume_token", value=token, expected="resume_token of an earlier response")
    return int(token)


def _facts(iteration: v1.Iteration) -> v1.Iteration:
    """Return the iteration without its proposal, except how its training went."""
    reward = v1.RewardProposal()
    for name in ("course", "warm_start"):
        if iteration.reward.HasField(name):
            getattr(reward, name).CopyFrom(getattr(iteration.reward, name))
    trained = iteration.HasField("reward")
    iteration.ClearField(iteration.WhichOneof("proposal") or "reward")
    if trained:
        iteration.reward.CopyFrom(reward)
    return iteration


def lineage(session: v1.Session, iterations: list[v1.Iteration]) -> pb.Lineage:
    """Build the tree of iterations with scores, changes and lessons."""
    tree, diffs = pb.Lineage(), 0
    for entry in iterations:
        diffs += len(entry.diff.encode())
        node = tree.nodes.add(
            iteration=entry.name,
            parent=entry.parent,
            planned_change=entry.planned_change,
            lesson=entry.lesson,
            best=entry.name == session.best_iteration,
            diagnosis=entry.diagnosis,
            diff=entry.diff if diffs <= PAGE_BYTES else "",
            notes=_notes(entry),
            author=entry.author,
            warnings=entry.warnings,
            structural_rewrite=entry.structural_rewrite,
            edited=entry.edited,
        )
        if entry.reward.HasField("course"):
            node.course.CopyFrom(entry.reward.course)
        if entry.reward.HasField("warm_start"):
            node.warm_start.CopyFrom(entry.reward.warm_start)
        if entry.HasField("score"):
            node.score = entry.score
        if entry.HasField("judgment"):
            node.interval_low, node.interval_high = entry.judgment.interval_low, entry.judgment.interval_high
            node.judged_by, node.without_video = entry.judgment.judged_by, entry.judgment.without_video
    tree.lessons.extend(lesson.message(session.name) for lesson in lessons(iterations))
    return tree


def _notes(iteration: v1.Iteration) -> list[str]:
    """Notes of people. Notes that the reviser addressed are replaced by its answers, which quote the notes."""
    addressed = list(iteration.addressed_notes)
    return [*addressed, *list(iteration.notes)[len(addressed) :]]
