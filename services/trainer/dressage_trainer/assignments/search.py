"""Serving a `SearchAssignment`: a sandboxed process searches; its state is stored on a schedule and when it must leave.

Improvements are items; one that an earlier attempt reported comes up again after a resume and is not repeated. A checkpoint is
one file that is complete or absent. One that is damaged costs its search's time and nothing else: a search that begins
anew ends in the same result.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from dressage.api.internal.v1 import run_service_pb2 as pb
from dressage.api.v1 import session_pb2
from dressage.errors import DressageError, InvalidArgument, NotFound
from dressage.sandbox.limits import GIB, Limits
from dressage.sandbox.process import SandboxProcess

from dressage_trainer import checkpoints
from dressage_trainer.assignments.context import AssignmentContext
from dressage_trainer.assignments.results import assignment_refused, infrastructure_failed
from dressage_trainer.sandboxes import SandboxSpec
from dressage_trainer.search.messages import Alive, Ended, Improved, Refused, SearchMessage, Stored, parse
from dressage_trainer.search.task import SearchTask, search_task
from dressage_trainer.uploads import get_file, put_files
from dressage_trainer.waiting import first_of

_SEARCH = "dressage_trainer.search.process:search"
SANDBOX = SandboxSpec(limits=Limits(memory_bytes=2 * GIB, file_bytes=GIB), preload=("dressage_trainer.search.process",))
"""How a search's process is started."""
_SILENCE_SECONDS = 300.0
"""The search says every second that it is alive, once its environment is made."""
_LEAVING_SECONDS = 15.0
_DEFAULT_CHECKPOINT_SECONDS = 60.0
_PARAMETERS = "best_parameters"


async def search(context: AssignmentContext) -> pb.AssignmentResult | None:
    """Serve the assignment; None if it was interrupted, with its state stored unless it was cancelled."""
    assignment = context.assignment.search
    try:
        task = search_task(assignment, cores=context.assignment.cores)
    except InvalidArgument as error:
        return assignment_refused(error.reason, error.message)
    try:
        return await _Serving(context, task).run()
    except DressageError as error:
        return infrastructure_failed(error.reason, error.message)


class _Serving:
    """One search under way."""

    def __init__(self, context: AssignmentContext, task: SearchTask) -> None:
        self._context = context
        self._task = task
        self._rate = _Rate()

    async def run(self) -> pb.AssignmentResult | None:
        """Search to the end, or until it must leave.

        :raises DressageError: where the process failed, or the store cannot be reached.
        """
        context, assignment = self._context, self._context.assignment.search
        state = await self._stored_state()
        process = await asyncio.to_thread(context.sandboxes.start, SANDBOX, _SEARCH)
        channel = process.channel
        receiving: asyncio.Future[SearchMessage] | None = None
        try:
            seconds = assignment.checkpoint_seconds or _DEFAULT_CHECKPOINT_SECONDS
            request = {"task": self._task.to_dict(), "state": state, "checkpoint_seconds": seconds}
            await asyncio.to_thread(channel.send, request, timeout=_SILENCE_SECONDS)
            leaving = asyncio.Event()
            while True:
                receiving = receiving or asyncio.ensure_future(_receive(process))
                waited = [] if leaving.is_set() else [context.terminate]
                await first_of(
                    receiving, *waited, context.cancelled, timeout=_LEAVING_SECONDS if leaving.is_set() else None
                )
                if context.cancelled.is_set():
                    return None
                if receiving.done():
                    message, receiving = receiving.result(), None
                    ended = await self._take(message)
                    if ended is not None:
                        return ended
                    if leaving.is_set() and isinstance(message, Stored) and message.requested:
                        return None
                elif leaving.is_set():
                    return None  # the state stored last has to do
                if context.terminate.is_set() and not leaving.is_set():
                    leaving.set()
                    await asyncio.to_thread(channel.send, {"checkpoint": True}, timeout=_LEAVING_SECONDS)
        finally:
            await asyncio.to_thread(process.kill)
            if receiving is not None:
                await asyncio.gather(receiving, return_exceptions=True)
            await asyncio.to_thread(context.sandboxes.end, process)

    async def _take(self, message: SearchMessage) -> pb.AssignmentResult | None:
        """Pass a message on; the result, if it is the last one."""
        match message:
            case Improved(evaluated, score, parameters):
                item = f"improvement/{evaluated}"
                if not self._context.finished(item):
                    improvement = pb.ImprovementReport(
                        improvement=session_pb2.SearchImprovement(evaluated=evaluated, score=score),
                        parameters=pb.Parameters(values=parameters.tolist()),
                    )
                    self._context.report(item, improvement=improvement)
            case Alive(_, env_steps):
                progress = pb.ProgressReport(activity="searching", steps_per_second=self._rate.at(env_steps))
                self._context.report("", progress=progress)
            case Stored():
                await self._store(message)
            case Refused(reason, text):
                return assignment_refused(reason, text)
            case Ended():
                return pb.AssignmentResult(search=self._result(message))
        return None

    def _result(self, ended: Ended) -> session_pb2.SearchResult:
        return session_pb2.SearchResult(
            evaluated=ended.evaluated,
            episodes=ended.evaluated * self._task.episodes,
            env_steps=ended.env_steps,
            best_score=ended.best_score,
            best_parameters=ended.best_parameters.tolist(),
            improvements=[
                session_pb2.SearchImprovement(evaluated=number, score=score) for number, score in ended.improvements
            ],
        )

    async def _store(self, stored: Stored) -> None:
        """Upload a state and report it."""
        folder = self._context.scratch / "states"
        key = await asyncio.to_thread(_write, folder, stored)
        item = f"checkpoint/{key}"
        if self._context.finished(item):
            return
        await put_files(self._context, {key: folder / key})
        checkpoint = pb.CheckpointReport(key=key, update=stored.evaluated, env_step=stored.env_steps)
        self._context.report(item, checkpoint=checkpoint)

    async def _stored_state(self) -> Mapping[str, Any] | None:
        """The state that an earlier attempt stored; None where there is none that can be used."""
        key = self._context.assignment.checkpoint
        if not key:
            return None
        path = self._context.scratch / "resume.safetensors"
        try:
            await get_file(self._context, key, path)
            state = _read(path)
            if state["task"] != self._task.identity():
                raise InvalidArgument(f"the checkpoint {key} belongs to another search", reason="CHECKPOINT_CORRUPT")
        except (InvalidArgument, NotFound) as error:
            message = f"{error.message}; the search begins anew, with the same result"
            warning = pb.WarningReport(reason="CHECKPOINT_CORRUPT", message=message)
            self._context.report(f"warning/checkpoint-{Path(key).stem}", warning=warning)
            return None
        return state


class _Rate:
    """Environment steps per second between two looks."""

    def __init__(self) -> None:
        self._time, self._steps = time.monotonic(), 0

    def at(self, steps: int) -> float:
        """The rate since the last look."""
        before, done = self._time, steps - self._steps
        self._time, self._steps = time.monotonic(), steps
        return max(0.0, done / max(1e-9, self._time - before))


async def _receive(process: SandboxProcess) -> SearchMessage:
    """The next message.

    :raises DressageError: where the process ended instead.
    """
    try:
        return parse(await asyncio.to_thread(process.channel.recv, timeout=_SILENCE_SECONDS))
    except DressageError as error:
        ended = await asyncio.to_thread(process.kill)
        tail = f": {ended.stderr_tail[-2000:]}" if ended.stderr_tail else ""
        raise _failure(error, ended.reason, tail) from error


def _failure(error: DressageError, reason: str, tail: str) -> DressageError:
    return DressageError(f"the search's process failed ({error.message}; {reason}){tail}", reason="SEARCH_FAILED")


def _write(folder: Path, stored: Stored) -> str:
    """Write a state as a checkpoint; returns its path relative to ``folder``, which is its key."""
    facts = {name: value for name, value in stored.state.items() if name != _PARAMETERS}
    arrays = {_PARAMETERS: np.asarray(stored.state[_PARAMETERS], np.float64)}
    snapshot = checkpoints.Snapshot(update=stored.evaluated, env_step=stored.env_steps, facts=facts, arrays=arrays)
    return checkpoints.write(folder, snapshot)


def _read(path: Path) -> dict[str, Any]:
    """The state in a checkpoint.

    :raises InvalidArgument: if it is damaged.
    """
    snapshot = checkpoints.read(path)
    with contextlib.suppress(KeyError):
        return {**snapshot.facts, "task": snapshot.facts["task"], _PARAMETERS: snapshot.arrays[_PARAMETERS]}
    raise InvalidArgument(f"the checkpoint {path.name} holds no state of a search", reason="CHECKPOINT_CORRUPT")
