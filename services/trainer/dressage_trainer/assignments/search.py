"""Serve a `SearchAssignment`: a sandboxed process searches; its state is stored on a schedule and before it must stop.

Improvements are items; one that an earlier attempt reported is computed again after a resume and not repeated. A checkpoint
is one file that is complete or absent. A damaged one costs time only: a search that restarts ends in the same result.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from dressage.api.internal.v1 import run_service_pb2 as pb
from dressage.api.v1 import session_pb2
from dressage.envs.custom import is_registered_task
from dressage.errors import DressageError, InvalidArgument, NotFound
from dressage.log_tails import without_tracebacks
from dressage.programs.languages.failures import process_error
from dressage.sandbox.limits import GIB, Limits
from dressage.sandbox.pipe import ChannelClosed
from dressage.sandbox.process import SandboxProcess

from dressage_trainer import checkpoints
from dressage_trainer.assignments.context import (
    AssignmentContext,
    StepRate,
    assignment_refused,
    first_of,
    infrastructure_failed,
)
from dressage_trainer.assignments.requests import program_search_task, search_task
from dressage_trainer.evaluation.player_pool import LANGUAGE_SECONDS, blames_plugin
from dressage_trainer.lease.compiled import CompiledCache
from dressage_trainer.lease.files import get_file, put_files
from dressage_trainer.lease.sandboxes import SandboxSpec
from dressage_trainer.search.messages import (
    EndMessage,
    ImprovementMessage,
    ProgramEndMessage,
    ProgramImprovementMessage,
    ProgramSearchTask,
    ProgressMessage,
    RefusalMessage,
    SearchMessage,
    SearchTask,
    StateMessage,
    parse,
)

_SEARCH = "dressage_trainer.search.process:search"
_SEARCH_PROGRAMS = "dressage_trainer.search.program_process:search"
SANDBOX = SandboxSpec(
    limits=Limits(memory_bytes=2 * GIB, file_bytes=GIB),
    preload=("dressage_trainer.search.process", "dressage.episodes.ahead"),
)
"""How a search's process is started where there are no compiled kernels."""
PROGRAM_SANDBOX = replace(SANDBOX, preload=("dressage_trainer.search.program_process", "dressage.programs.ahead"))
"""The same for a search over programs."""
_COMPILING_SECONDS = 1.0
"""Between two reports that kernels are being compiled."""
_SILENCE_SECONDS = 300.0
"""The search reports every second that it is alive, once its environment exists."""
_EXIT_SECONDS = 5.0
"""A process that closed its channel has ended by then."""
_LAST_STATE_SECONDS = 20.0
_DEFAULT_CHECKPOINT_SECONDS = 60.0
_PARAMETERS = "best_parameters"


async def search(context: AssignmentContext) -> pb.AssignmentResult | None:
    """Serve the assignment; None if it was interrupted, with its state stored unless it was cancelled."""
    assignment = context.assignment.search
    try:
        task_of = program_search_task if assignment.HasField("program") else search_task
        task = task_of(assignment, cores=context.assignment.cores)
    except InvalidArgument as error:
        return assignment_refused(error.reason, error.message)
    try:
        return await _Serving(context, task).run()
    except InvalidArgument as error:
        return assignment_refused(error.reason, error.message)
    except DressageError as error:
        return infrastructure_failed(error.reason, error.message)


class _Serving:
    """One search in progress."""

    def __init__(self, context: AssignmentContext, task: SearchTask | ProgramSearchTask) -> None:
        self._context = context
        self._task = task
        self._language = task.environment.partition("/")[0] if is_registered_task(task.environment) else ""
        self._rate, self._candidate_rate = StepRate(), StepRate()
        self._storing: asyncio.Future[None] | None = None
        self._receiving: asyncio.Future[SearchMessage] | None = None

    async def run(self) -> pb.AssignmentResult | None:
        """Search to the end, or until it must stop.

        :raises DressageError: if the process fails, or the store cannot be reached.
        """
        context, seconds = self._context, self._context.assignment.search.checkpoint_seconds
        sandbox, target = self._process()
        if context.compiled is not None:
            await self._prepare(context.compiled)
            sandbox = context.compiled.with_kernels(sandbox)
        state = await self._stored_state()
        # A session that searches once is likely to search again.
        context.sandboxes.keep_ready("search", lambda: {sandbox: 1})
        process = await asyncio.to_thread(context.sandboxes.start, sandbox, target)
        try:
            request = {
                "task": self._task.to_dict(),
                "state": state,
                "checkpoint_seconds": seconds or _DEFAULT_CHECKPOINT_SECONDS,
            }
            await asyncio.to_thread(process.channel.send, request, timeout=_SILENCE_SECONDS)
            return await self._follow(process)
        finally:
            await asyncio.to_thread(process.kill)
            if self._storing is not None:
                self._storing.cancel()
            # A thread that still waits for a message must see the end of the channel before the channel is closed.
            pending = [one for one in (self._receiving, self._storing) if one is not None]
            await asyncio.gather(*pending, return_exceptions=True)
            await asyncio.to_thread(context.sandboxes.end, process)

    def _process(self) -> tuple[SandboxSpec, str]:
        """Return how the process is started, and its target."""
        programs = isinstance(self._task, ProgramSearchTask)
        return (PROGRAM_SANDBOX, _SEARCH_PROGRAMS) if programs else (SANDBOX, _SEARCH)

    async def _prepare(self, compiled: CompiledCache) -> None:
        """Compile the environment's kernels unless they are there; report that it takes time."""
        preparing = asyncio.ensure_future(asyncio.to_thread(compiled.prepare_kernels, self._task.environment))
        ends = (preparing, self._context.terminate, self._context.cancelled)
        while True:
            await first_of(*ends, timeout=_COMPILING_SECONDS)
            if preparing.done() or self._context.terminate.is_set() or self._context.cancelled.is_set():
                return
            self._context.report("", progress=pb.ProgressReport(activity="compiling"))

    async def _follow(self, process: SandboxProcess) -> pb.AssignmentResult | None:
        """Handle messages until the last one, or until the search must stop."""
        context = self._context
        while not context.terminate.is_set():
            message = await self._next(process, context.terminate)
            if context.cancelled.is_set():
                return None
            if message is not None and (result := await self._handle(message)) is not None:
                return result
        await asyncio.to_thread(process.channel.send, {"checkpoint": True}, timeout=_LAST_STATE_SECONDS)
        with contextlib.suppress(TimeoutError):  # a resume then begins from the state that was stored before
            async with asyncio.timeout(_LAST_STATE_SECONDS):
                while not context.cancelled.is_set():
                    message = await self._next(process)
                    if isinstance(message, StateMessage) and message.requested:
                        if self._storing is not None:
                            await asyncio.gather(self._storing, return_exceptions=True)
                        await self._store(message)
                        return None
                    if message is not None and (result := await self._handle(message)) is not None:
                        return result
        return None

    async def _next(self, process: SandboxProcess, *until: asyncio.Event) -> SearchMessage | None:
        """Return the next message; None if one of these events or a cancellation comes first.

        :raises DressageError: if the process fails.
        """
        if self._receiving is None:
            self._receiving = asyncio.ensure_future(_receive(process, language=self._language))
        await first_of(self._receiving, self._context.cancelled, *until)
        if not self._receiving.done():
            return None
        received, self._receiving = self._receiving, None
        return received.result()

    async def _handle(self, message: SearchMessage) -> pb.AssignmentResult | None:
        """Report what a message contains; return the result if it is the last one."""
        match message:
            case ImprovementMessage(evaluated, score, parameters):
                item = f"improvement/{evaluated}"
                if not self._context.finished(item):
                    improvement = pb.ImprovementReport(
                        improvement=session_pb2.SearchImprovement(evaluated=evaluated, score=score),
                        parameters=pb.Parameters(values=parameters.tolist()),
                    )
                    self._context.report(item, improvement=improvement)
            case ProgramImprovementMessage(evaluated, score, program):
                item = f"improvement/{evaluated}"
                if not self._context.finished(item):
                    better = session_pb2.SearchImprovement(evaluated=evaluated, score=score, program=program)
                    self._context.report(item, improvement=pb.ImprovementReport(improvement=better))
            case ProgressMessage(evaluated, env_steps):
                progress = pb.ProgressReport(
                    activity="searching",
                    steps_per_second=self._rate.at(env_steps),
                    evaluated=evaluated,
                    candidates_per_second=self._candidate_rate.at(evaluated),
                )
                self._context.report("", progress=progress)
            case StateMessage():
                # The search continues meanwhile. States that arrive during an upload are skipped: a newer one will follow.
                if self._storing is None or self._storing.done():
                    if self._storing is not None:
                        self._storing.result()
                    self._storing = asyncio.ensure_future(self._store(message))
            case RefusalMessage(reason, text):
                return assignment_refused(reason, text)
            case EndMessage():
                return pb.AssignmentResult(search=self._result(message))
            case ProgramEndMessage():
                return pb.AssignmentResult(search=_program_result(message))
        return None

    def _result(self, ended: EndMessage) -> session_pb2.SearchResult:
        assert isinstance(self._task, SearchTask)
        return session_pb2.SearchResult(
            evaluated=ended.evaluated,
            episodes=ended.evaluated * self._task.episodes_each,
            env_steps=ended.env_steps,
            best_score=ended.best_score,
            best_parameters=ended.best_parameters.tolist(),
            improvements=[
                session_pb2.SearchImprovement(evaluated=number, score=score) for number, score in ended.improvements
            ],
        )

    async def _store(self, message: StateMessage) -> None:
        """Upload a state and report it."""
        folder = self._context.scratch / "states"
        key = await asyncio.to_thread(_write, folder, message)
        item = f"checkpoint/{key}"
        if self._context.finished(item):
            return
        await put_files(self._context, {key: folder / key})
        checkpoint = pb.CheckpointReport(key=key, update=message.evaluated, env_step=message.env_steps)
        self._context.report(item, checkpoint=checkpoint)

    async def _stored_state(self) -> Mapping[str, Any] | None:
        """Return the state that an earlier attempt stored; None if there is none that can be used."""
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
            message = f"{error.message}; the search restarts, with the same result"
            warning = pb.WarningReport(reason="CHECKPOINT_CORRUPT", message=message)
            self._context.report(f"warning/checkpoint-{Path(key).stem}", warning=warning)
            return None
        return state


def _program_result(ended: ProgramEndMessage) -> session_pb2.SearchResult:
    return session_pb2.SearchResult(
        evaluated=ended.evaluated,
        episodes=ended.episodes,
        best_score=ended.best_score,
        best_program=ended.best_program,
        cache_hits=ended.cache_hits,
        improvements=[
            session_pb2.SearchImprovement(evaluated=number, score=score) for number, score in ended.improvements
        ],
    )


async def _receive(process: SandboxProcess, *, language: str = "") -> SearchMessage:
    """Return the next message.

    :param language: registered language whose code the process runs; empty: none.
    :raises InvalidArgument: if that code ends the process, or no sign of it comes in time.
    :raises DressageError: if the process ends otherwise.
    """
    silence = LANGUAGE_SECONDS if language else _SILENCE_SECONDS
    try:
        return parse(await asyncio.to_thread(process.channel.recv, timeout=silence))
    except DressageError as error:
        closed = isinstance(error, ChannelClosed)
        if closed:
            await asyncio.to_thread(process.wait, _EXIT_SECONDS)
        ended = await asyncio.to_thread(process.kill)
        if language and blames_plugin(ended, error):
            problem = ended.reason if closed else f"no sign of the search ({error.message})"
            failure = process_error(language, problem, ended.stderr_tail)
            raise InvalidArgument(failure.message, reason=failure.reason) from error
        tail = f": {without_tracebacks(ended.stderr_tail)[-2000:]}" if ended.stderr_tail else ""
        message = f"the search's process failed ({error.message}; {ended.reason}){tail}"
        raise DressageError(message, reason="SEARCH_FAILED") from error


def _write(folder: Path, message: StateMessage) -> str:
    """Write a state as a checkpoint; return its path relative to ``folder``, which is its key."""
    facts = {name: value for name, value in message.state.items() if name != _PARAMETERS}
    arrays = {_PARAMETERS: np.asarray(message.state.get(_PARAMETERS, ()), np.float64)}  # programs have none
    snapshot = checkpoints.Snapshot(update=message.evaluated, env_step=message.env_steps, facts=facts, arrays=arrays)
    return checkpoints.write(folder, snapshot)


def _read(path: Path) -> dict[str, Any]:
    """Return the state in a checkpoint.

    :raises InvalidArgument: if it is damaged.
    """
    snapshot = checkpoints.read(path)
    with contextlib.suppress(KeyError):
        return {**snapshot.facts, "task": snapshot.facts["task"], _PARAMETERS: snapshot.arrays[_PARAMETERS]}
    raise InvalidArgument(f"the checkpoint {path.name} holds no state of a search", reason="CHECKPOINT_CORRUPT")
