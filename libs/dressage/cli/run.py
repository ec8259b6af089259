"""`dressage run` and `dressage train`: print the plan, run the session, follow it, print the summary.

Ctrl-C cancels a session that runs in this process, because no other process would continue it; a session of a running server
continues there. A second Ctrl-C ends the command at once. SIGTERM stops without cancelling: the next server on the data
folder resumes the session.
"""

from __future__ import annotations

import asyncio
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

from dressage import errors
from dressage.api.v1 import session_pb2
from dressage.cli import output, plan, summary
from dressage.local.connection import Connection, ServerOptions, connect, refuse_unusable
from dressage.sdk import preflight, progress, screen, texts
from dressage.sdk.results import Result, collect

_CANCEL_SECONDS = 60.0
_INTERRUPTED = 130
_TERMINATED = 143


@dataclass(frozen=True)
class OutputOptions:
    """How a command interacts with the user."""

    yes: bool = False
    detach: bool = False
    as_json: bool = False
    detail: screen.Detail = "normal"
    fail_below: float | None = None


def run(spec: session_pb2.SessionSpec, server: ServerOptions, output_options: OutputOptions) -> int:
    """Run a session and return the exit code."""
    return asyncio.run(_run(spec, server, output_options))


async def _run(spec: session_pb2.SessionSpec, server: ServerOptions, output_options: OutputOptions) -> int:
    async with connect(server, start="own") as connection:
        refuse_unusable(server, connection, detach=output_options.detach)
        estimate = await preflight.check(spec, connection)
        document = {"plan": plan.plan_dict(estimate)}
        if not output_options.as_json:
            output.console().print(plan.plan_text(estimate))
        if not output_options.yes and not plan.confirm(estimate, ask=_asker(output_options)):
            return 1
        if output_options.detach:
            return _print_started(await connection.client.create_session(spec), connection, document, output_options)
        for name in await preflight.interrupted_sessions(connection):
            watch = f"dressage sessions watch {texts.short(name)}{connection.flags}"
            print_remark(f"{texts.short(name)} is interrupted and stays so; to continue it later: {watch}")
        # Before the session exists, Ctrl-C simply ends the process.
        async with _signals() as signals:
            session = await connection.client.create_session(spec)
            ended, code = await follow(session.name, connection, output_options, signals=signals)
        if code == _TERMINATED and connection.kind == "stack":
            connection = replace(connection, read_only=True)  # no process continues it after this one
        result = await result_of(ended, connection)
        if output_options.as_json:
            output.print_json(document | summary.result_dict(result))
        else:
            summary.print_result(result)
        return code if code is not None else summary.exit_code(result, fail_below=output_options.fail_below)


async def result_of(session: session_pb2.Session, connection: Connection) -> Result:
    """Return the result of a session with its learning curve, which is drawn next to the policy."""
    from dressage.sdk.curve_pictures import learning_curve  # imports numpy

    return await collect(session, connection, await learning_curve(session, connection))


def _asker(output_options: OutputOptions) -> Callable[[str], bool] | None:
    """Return a function that asks the user; None without a terminal."""
    if output_options.as_json or not (sys.stdin.isatty() and sys.stdout.isatty()):
        return None
    import typer

    return lambda question: typer.confirm(question, default=True)


def _print_started(
    session: session_pb2.Session, connection: Connection, document: dict[str, Any], output_options: OutputOptions
) -> int:
    if output_options.as_json:
        output.print_json(document | {"session": output.message_dict(session)})
    else:
        print(f"{session.name} started\n{hints(session.name, connection)}")
    return 0


def hints(session: str, connection: Connection) -> str:
    """Return the commands for a session that continues without this one."""
    name, at = texts.short(session), connection.flags
    return f"  follow: dressage sessions watch {name}{at}\n  cancel: dressage sessions cancel {name}{at}"


async def follow(
    name: str, connection: Connection, output_options: OutputOptions, *, signals: asyncio.Queue[int]
) -> tuple[session_pb2.Session, int | None]:
    """Follow a session until it ends or a signal arrives; return the session and, after a signal, the exit code."""
    watching = asyncio.create_task(show(name, connection, as_json=output_options.as_json, detail=output_options.detail))
    try:
        signalled = await _first(watching, signals, timeout=None)
        if signalled is None:
            try:
                watching.result()
            except errors.Unavailable as error:
                raise _server_ended_error(name, connection) if connection.kind == "joined" else error from error
            return await connection.client.get_session(name), None
        return await _handle_interrupt(name, connection, watching, signals, signalled)
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)


def _server_ended_error(name: str, connection: Connection) -> errors.Unavailable:
    """Return the error of a session on a server that was another command's, and ended with that command."""
    session = texts.short(name)
    return errors.Unavailable(
        f"the command whose server {session} used has ended, and so the session is interrupted. To continue it: "
        f"dressage sessions watch {session}{connection.flags}",
        reason="SERVER_ENDED",
    )


async def _handle_interrupt(
    name: str, connection: Connection, watching: asyncio.Task[None], signals: asyncio.Queue[int], signalled: int
) -> tuple[session_pb2.Session, int]:
    if signalled == signal.SIGTERM or connection.kind != "stack":
        if connection.kind == "stack":
            print_remark(f"\nstopping; `dressage serve` on this data folder resumes {name}")
        else:
            print_remark(f"\n{name} continues at {connection.client.address}\n{hints(name, connection)}")
        code = _TERMINATED if signalled == signal.SIGTERM else _INTERRUPTED
        return await connection.client.get_session(name), code
    print_remark("\ncancelling the session; press Ctrl-C again to exit at once")
    await connection.client.cancel_session(name, reason="cancelled by Ctrl-C")
    await _first(watching, signals, timeout=_CANCEL_SECONDS)
    return await connection.client.get_session(name), _INTERRUPTED


def print_remark(text: str) -> None:
    """Print to standard error, which has no results."""
    print(text, file=sys.stderr, flush=True)


async def _first(watching: asyncio.Task[None], signals: asyncio.Queue[int], *, timeout: float | None) -> int | None:
    """Return the first signal; None if the watch ends first or the timeout expires."""
    signalled = asyncio.create_task(signals.get())
    try:
        await asyncio.wait({watching, signalled}, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        return signalled.result() if signalled.done() and not watching.done() else None
    finally:
        signalled.cancel()


@asynccontextmanager
async def _signals() -> AsyncIterator[asyncio.Queue[int]]:
    """Deliver SIGINT and SIGTERM to a queue instead of raising, while a session runs."""
    loop, queue = asyncio.get_running_loop(), asyncio.Queue[int](maxsize=8)

    def enqueue(number: int) -> None:
        if not queue.full():
            queue.put_nowait(number)

    numbers = (signal.SIGINT, signal.SIGTERM)
    for number in numbers:
        loop.add_signal_handler(number, enqueue, number)
    try:
        yield queue
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)


@dataclass(frozen=True)
class History:
    """The events of a session so far."""

    view: progress.View
    resume_token: str


async def read_history(session: session_pb2.Session, connection: Connection) -> History:
    """Return what an ended session has shown, so that only newer events are shown when it is resumed."""
    view, token = screen.first_view(session, flags=connection.flags), ""
    async for response in connection.client.watch_session(session.name):
        view, token = progress.after(view, response), response.resume_token or token
    return History(replace(view, lines=()), token)


async def show(
    name: str,
    connection: Connection,
    *,
    as_json: bool,
    detail: screen.Detail = "normal",
    earlier: History | None = None,
) -> None:
    """Show the events of a session until it ends: a live display on a terminal, else one line for each event.

    :param earlier: events that are not shown again.
    """
    session = await connection.client.get_session(name)
    view, token = screen.first_view(session, flags=connection.flags), ""
    if earlier is not None:
        view, token = (
            replace(earlier.view, max_iterations=view.max_iterations, started=time.monotonic()),
            earlier.resume_token,
        )
    with screen.display(view, stream=sys.stderr if as_json else None, detail=detail) as update:
        async for response in connection.client.watch_session(name, resume_token=token):
            view = progress.after(view, response)
            update(view, response.event)
