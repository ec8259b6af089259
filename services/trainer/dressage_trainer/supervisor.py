"""The supervisor: the trusted half of a trainer.

It holds the run token, talks gRPC and uploads. Generated code runs only in its sandboxed children.

It does one assignment after another until the lease is given back. A failure of an assignment is its result; the process
fails only if there is no orchestrator. On SIGTERM and shortly before its deadline it stores a checkpoint and ends with
`ExitCode.CHECKPOINTED`.
"""

from __future__ import annotations

import asyncio
import importlib
import os
import signal
import time
from enum import IntEnum
from pathlib import Path

import structlog
from dressage.api.internal.v1 import run_service_pb2 as pb
from dressage.errors import DressageError
from dressage.sandbox.capabilities import capabilities
from dressage.sandbox.machine import Machine
from dressage.sandbox.scratch import remove_scratch
from dressage.serving.metrics import package_version

from dressage_trainer.assignments.context import (
    AssignmentContext,
    assignment_refused,
    first_of,
    infrastructure_failed,
)
from dressage_trainer.evaluation.player_pool import SANDBOX as PLAYER_SANDBOX
from dressage_trainer.evaluation.player_pool import PlayerPool
from dressage_trainer.lease.compiled import CompiledCache, Fillings, default_folder
from dressage_trainer.lease.sandboxes import Sandboxes
from dressage_trainer.lease.work import WorkStream
from dressage_trainer.messages import NO_ROOM
from dressage_trainer.settings import TrainerSettings

_DRAIN_SECONDS = 30.0
_LAST_DRAIN_SECONDS = 5.0
_FILL_SECONDS = 15.0
_IDLE_SECONDS = 0.3
"""After this wait the trainer starts spare processes. Earlier they would compete with the next assignment's own."""
_MARGIN_SECONDS = 60.0
_MARGIN = 0.1
"""A trainer checkpoints this long before its deadline, or this part of its life if that is less."""
_KINDS = ("train", "score", "evaluate", "search")


class ExitCode(IntEnum):
    """Exit status of the process, for its launcher. An assignment's end is its result, never the exit status."""

    DONE = 0
    """The lease was given back or stopped."""
    FAILED = 1
    """There is no orchestrator, or it refuses the trainer."""
    CHECKPOINTED = 75
    """SIGTERM or the deadline: a later attempt resumes from the checkpoint."""


async def supervise(settings: TrainerSettings, scratch: Path, *, began: float | None = None) -> ExitCode:
    """Run the trainer's whole life.

    :param scratch: existing folder for the trainer's files.
    :param began: when the process began, by `time.monotonic`; None: now.
    :returns: the exit status.
    """
    log = structlog.get_logger("dressage.trainer")
    hello = pb.Hello(
        run=settings.run,
        attempt=settings.effective_attempt,
        token=settings.token.get_secret_value(),
        version=package_version(),
        sandbox_capabilities=_sandbox_capabilities(),
    )
    work = WorkStream(
        address=settings.address, hello=hello, redial_seconds=settings.redial_seconds, tls_ca=settings.tls_ca
    )
    terminate = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, terminate.set)
    _watch_deadline(settings.deadline_seconds, time.monotonic() if began is None else began, terminate)
    supervisor = Supervisor(settings, work=work, scratch=scratch, terminate=terminate)
    stream = asyncio.ensure_future(work.run())
    serving = asyncio.ensure_future(supervisor.serve())
    try:
        await first_of(stream, serving)
        if stream.done() and not serving.done():
            stream.result()  # raises what ended the stream; if nothing did, the supervisor is given no more work
        return await serving
    except DressageError as error:
        log.error("trainer ends", reason=error.reason, error=error.message)
        return ExitCode.FAILED
    except ExceptionGroup as errors:
        log.error("trainer ends", error="; ".join(str(error) for error in errors.exceptions), exc_info=errors)
        return ExitCode.FAILED
    finally:
        for task in (serving, stream):
            task.cancel()
        await asyncio.gather(serving, stream, return_exceptions=True)
        await supervisor.close()


def _sandbox_capabilities() -> list[str]:
    available = capabilities()
    landlock = [f"landlock-{available.landlock_abi}"] if available.landlock_abi else []
    return [*landlock, *(["seccomp"] if available.seccomp else [])]


def _watch_deadline(seconds: float, began: float, terminate: asyncio.Event) -> None:
    """Set `terminate` shortly before the process's deadline, ``seconds`` after it began; never if ``seconds`` is 0."""
    if seconds > 0:
        left = began + seconds - min(_MARGIN_SECONDS, _MARGIN * seconds) - time.monotonic()
        asyncio.get_running_loop().call_later(max(0.0, left), terminate.set)


class Supervisor:
    """Does assignments one after another.

    :param scratch: existing folder; each assignment gets a folder of its own in it, which is removed after it.
    :param terminate: set on SIGTERM, and near the deadline.
    """

    def __init__(self, settings: TrainerSettings, *, work: WorkStream, scratch: Path, terminate: asyncio.Event) -> None:
        self._work, self._scratch, self._terminate = work, scratch, terminate
        self._allow_unsandboxed = allow = settings.allow_unsandboxed
        machine = Machine.here(scratch, scratch_bytes=settings.scratch_bytes)
        self._sandboxes = Sandboxes(scratch / "sandboxes", allow_unsandboxed=allow, machine=machine)
        self._cache = CompiledCache(settings.compiled_cache or default_folder(os.environ), self._sandboxes)
        self._players = PlayerPool(self._sandboxes, self._cache.with_kernels(PLAYER_SANDBOX))
        self._fillings = Fillings(self._cache, filled=self._refill_if_idle)
        self._idle = False
        self._refilling: asyncio.Future[None] | None = None
        self._log = structlog.get_logger("dressage.trainer")

    async def serve(self) -> ExitCode:
        """Do assignments until there are no more, or the trainer has to stop."""
        while (assignment := await self._next()) is not None:
            await self._do(assignment)
        if not await self._work.drain(_LAST_DRAIN_SECONDS if self._shutdown_requested() else _DRAIN_SECONDS):
            self._log.warning("some reports were not accepted in time")
        return ExitCode.CHECKPOINTED if self._terminate.is_set() else ExitCode.DONE

    async def close(self) -> None:
        """End what is kept between assignments. A compilation in progress may finish unless the trainer has to stop."""
        await self._fillings.close(seconds=0.0 if self._shutdown_requested() else _FILL_SECONDS)
        await self._players.close()
        await asyncio.to_thread(self._sandboxes.close)
        if self._refilling is not None:
            await self._refilling

    def _shutdown_requested(self) -> bool:
        return self._terminate.is_set() or self._work.stopped.is_set()

    async def _next(self) -> pb.Assignment | None:
        """Return the next assignment; None when the lease is given back or the trainer has to stop."""
        if self._shutdown_requested():
            return None
        getting = asyncio.ensure_future(self._work.assignments.get())
        events = (getting, self._work.stopped, self._terminate)
        try:
            await first_of(*events, timeout=_IDLE_SECONDS)
            if not getting.done() and not self._shutdown_requested():
                self._idle = True
                if self._refilling is None or self._refilling.done():
                    self._refilling = asyncio.ensure_future(asyncio.to_thread(self._sandboxes.refill))
                await first_of(*events)
            return getting.result() if getting.done() else None
        finally:
            self._idle = False
            getting.cancel()

    def _refill_if_idle(self) -> None:
        """Replace spare processes now that more is compiled; called in a thread."""
        if self._idle:
            self._sandboxes.refill()

    async def _do(self, assignment: pb.Assignment) -> None:
        """Do one assignment and report its result, unless it is interrupted or cancelled."""
        kind = assignment.WhichOneof("work")
        self._log.info("assignment", id=assignment.id, name=assignment.name, work=kind)
        scratch = self._scratch / f"assignment-{assignment.id}"
        context = AssignmentContext(
            work=self._work,
            assignment=assignment,
            scratch=scratch,
            terminate=self._terminate,
            cancelled=self._work.cancellation(assignment.id),
            sandboxes=self._sandboxes,
            early_end=self._work.early_end(assignment.id),
            step_grant=self._work.step_grant(assignment.id),
            allow_unsandboxed=self._allow_unsandboxed,
            compiled=self._cache,
            fillings=self._fillings,
            players=self._players,
        )
        try:
            result = await self._result_of(context, kind)
        finally:
            self._work.forget(assignment.id)
            await asyncio.to_thread(remove_scratch, scratch)
        if result is not None:
            failure = result.failure.failure
            self._log.info("assignment ended", id=assignment.id, reason=failure.reason, message=failure.message)
            context.report("result", result=result)
        else:
            self._log.info("assignment ended early", id=assignment.id, cancelled=context.cancelled.is_set())

    async def _result_of(self, context: AssignmentContext, kind: str | None) -> pb.AssignmentResult | None:
        """Return how an assignment ended, as a result even if that is an error; None if it was interrupted or cancelled."""
        if context.cancelled.is_set():
            return None
        try:
            # An attempt that was killed may have left one.
            await asyncio.to_thread(remove_scratch, context.scratch)
            context.scratch.mkdir(parents=True)
            return await _perform(context, kind)
        except DressageError as error:
            self._log.warning("assignment failed", id=context.assignment.id, reason=error.reason, error=error.message)
            return infrastructure_failed(error.reason, error.message)
        except OSError as error:
            reason = "OUT_OF_DISK" if error.errno in NO_ROOM else "TRAINER_IO"
            return infrastructure_failed(reason, f"the trainer's files: {error}")
        except Exception as error:
            # A defect of the trainer in one assignment must not end the lease for those after it.
            self._log.exception("assignment failed", id=context.assignment.id)
            return infrastructure_failed("TRAINER_FAILED", f"the trainer failed: {type(error).__name__}: {error}")


async def _perform(context: AssignmentContext, kind: str | None) -> pb.AssignmentResult | None:
    """Do the work with the function and module named after its kind, imported when first needed: some are heavy."""
    if kind not in _KINDS:
        message = f"work: this trainer does not support it (got {kind!r}); expected one of {', '.join(_KINDS)}"
        return assignment_refused("ASSIGNMENT_UNKNOWN", message)
    module = importlib.import_module(f"dressage_trainer.assignments.{kind}")
    result: pb.AssignmentResult | None = await getattr(module, kind)(context)
    return result
