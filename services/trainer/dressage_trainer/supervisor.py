"""The supervisor: the trusted half of a trainer. It holds the run token, talks gRPC, uploads; generated code runs in its
sandboxed children only.

It takes assignments one after the other until there is no more work. SIGTERM stores a checkpoint and leaves with
`ExitCode.CHECKPOINTED`.
"""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import structlog
from dressage.api.internal.v1 import run_service_pb2 as pb
from dressage.api.v1 import session_pb2
from dressage.errors import DressageError
from dressage.sandbox import capabilities
from dressage.serving.metrics import package_version

from dressage_trainer.compiled import CompiledCache, default_folder
from dressage_trainer.messages import NO_ROOM
from dressage_trainer.outcome import ExitCode, Outcome
from dressage_trainer.scoring import score
from dressage_trainer.settings import TrainerSettings
from dressage_trainer.training import Training, TrainingContext
from dressage_trainer.waiting import first_of
from dressage_trainer.work import WorkStream

_DRAIN_SECONDS = 30.0


async def supervise(settings: TrainerSettings, scratch: Path) -> ExitCode:
    """Runs the trainer's whole life; returns the exit status."""
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
    context = TrainingContext(
        work=work,
        scratch=scratch,
        terminate=terminate,
        allow_unsandboxed=settings.allow_unsandboxed,
        compiled=CompiledCache(settings.compiled_cache or default_folder(os.environ)),
    )
    stream = asyncio.ensure_future(work.run())
    assignments = asyncio.ensure_future(_assignments(context))
    try:
        await first_of(stream, assignments)
        if stream.done() and not assignments.done():
            stream.result()  # raises what ended the stream; if nothing did, the last assignment is being wound up
        return await assignments
    except DressageError as error:
        log.error("trainer ends", reason=error.reason, error=error.message)
        return ExitCode.FAILED
    except ExceptionGroup as errors:
        log.error("trainer ends", error="; ".join(str(error) for error in errors.exceptions), exc_info=errors)
        return ExitCode.FAILED
    finally:
        for task in (assignments, stream):
            task.cancel()
        await asyncio.gather(assignments, stream, return_exceptions=True)


def _sandbox_capabilities() -> list[str]:
    found = capabilities()
    landlock = [f"landlock-{found.landlock_abi}"] if found.landlock_abi else []
    return [*landlock, *(["seccomp"] if found.seccomp else [])]


async def _assignments(context: TrainingContext) -> ExitCode:
    """Takes assignments until there are no more, one fails, or the trainer must leave."""
    log = structlog.get_logger("dressage.trainer")
    while True:
        assignment = await _next(context)
        if assignment is None:
            return ExitCode.CHECKPOINTED if context.terminate.is_set() else ExitCode.DONE
        log.info("assignment", id=assignment.id, work=assignment.WhichOneof("work"))
        outcome = await _perform(context, assignment)
        if outcome.report:
            failure = session_pb2.Failure(reason=outcome.reason, message=outcome.message)
            context.work.report(pb.Report(assignment=assignment.id, failed=failure))
        if not await context.work.drain(_DRAIN_SECONDS):
            log.warning("some reports were not accepted in time")
        if not outcome.done:
            log.warning("assignment ended early", reason=outcome.reason, message=outcome.message, tail=outcome.tail)
            return outcome.code


async def _next(context: TrainingContext) -> pb.Assignment | None:
    """The next assignment; None when there is no more work or the trainer is told to stop."""
    getting = asyncio.ensure_future(context.work.assignments.get())
    try:
        await first_of(getting, context.work.stopped, context.terminate)
        # Looked at first: one that was got would be lost otherwise. Its work is told to leave as well.
        return getting.result() if getting.done() else None
    finally:
        getting.cancel()


async def _perform(context: TrainingContext, assignment: pb.Assignment) -> Outcome:
    try:
        return await _work(context, assignment)
    except OSError as error:
        if error.errno not in NO_ROOM:
            raise
        return Outcome.failed("OUT_OF_DISK", f"the trainer's files: {error}", generated_code=False)


async def _work(context: TrainingContext, assignment: pb.Assignment) -> Outcome:
    match assignment.WhichOneof("work"):
        case "train":
            return await Training(context, assignment).run()
        case "score":
            return await score(context, assignment)
        case other:
            return Outcome.failed(
                "ASSIGNMENT_UNKNOWN", f"this trainer cannot do {other!r}; it trains and scores", generated_code=False
            )
