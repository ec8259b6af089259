"""`dressage run` and `dressage train`: say what it will spend, do it, show it, sum it up.

Ctrl-C means what the user can still get: a session of this process's own stack is cancelled (nobody else would go on with
it), one of a running server is left to it. A second Ctrl-C leaves at once. SIGTERM stops without cancelling: the next server on
the data folder takes the session up where it was.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

from dressage.api.v1 import session_pb2
from dressage.cli import output, plan, summary
from dressage.local.connection import Connection, connect, refuse_unusable
from dressage.local.connection import ServerOptions as Where
from dressage.sdk import progress, screen
from dressage.sdk.curve_file import Picture

_CANCEL_SECONDS = 60.0
_INTERRUPTED = 130
_TERMINATED = 143


@dataclass(frozen=True)
class Manner:
    """How a command behaves towards the person who typed it."""

    yes: bool = False
    detach: bool = False
    as_json: bool = False


def run(spec: session_pb2.SessionSpec, where: Where, manner: Manner) -> int:
    """Runs a session; returns the exit code."""
    return asyncio.run(_run(spec, where, manner))


async def _run(spec: session_pb2.SessionSpec, where: Where, manner: Manner) -> int:
    async with connect(where, start="full") as connection:
        refuse_unusable(where, connection, detach=manner.detach)
        estimate = await connection.client.estimate_session(spec)
        document = {"plan": plan.plan_dict(estimate)}
        if not manner.as_json:
            output.console().print(plan.plan_text(estimate))
        if not manner.yes and not plan.agreed(estimate, ask=_asker(manner)):
            return 1
        if manner.detach:
            return _detached(await connection.client.create_session(spec), connection, document, manner)
        # Before there is a session, Ctrl-C may just end everything.
        async with _signals() as signals:
            session = await connection.client.create_session(spec)
            ended, code = await follow(session.name, connection, manner, signals=signals)
        if code == _TERMINATED and connection.kind == "stack":
            connection = replace(connection, only_looks=True)  # nothing goes on with it once this process is gone
        result = await summary.collect(ended, connection, curve=await curve(ended, connection))
        if manner.as_json:
            output.print_json(document | result)
        else:
            output.console().print(summary.text(result))
        return code if code is not None else summary.exit_code(ended)


async def curve(session: session_pb2.Session, connection: Connection) -> Picture | None:
    """The picture of the best training's learning curves, drawn now; None where there is no policy."""
    if not session.best_policy:
        return None
    from dressage.sdk import curves

    return await curves.save(session, connection)


def _asker(manner: Manner) -> Callable[[str], bool] | None:
    """How to ask the user; None where nobody is there to answer."""
    if manner.as_json or not (sys.stdin.isatty() and sys.stdout.isatty()):
        return None
    import typer

    return lambda question: typer.confirm(question, default=True)


def _detached(session: session_pb2.Session, connection: Connection, document: dict[str, Any], manner: Manner) -> int:
    if manner.as_json:
        output.print_json(document | {"session": output.message_dict(session)})
    else:
        print(f"{session.name} has begun\n{hints(session.name, connection)}")
    return 0


def hints(session: str, connection: Connection) -> str:
    """How to come back to a session that goes on without this command."""
    name, at = progress.short(session), connection.flags
    return f"  watch it:  dressage sessions watch {name}{at}\n  cancel it: dressage sessions cancel {name}{at}"


async def follow(
    name: str, connection: Connection, manner: Manner, *, signals: asyncio.Queue[int]
) -> tuple[session_pb2.Session, int | None]:
    """Shows a session until it ends or the user leaves; returns the session and, if it was left, the exit code."""
    watching = asyncio.create_task(show(name, connection, as_json=manner.as_json))
    try:
        signalled = await _first(watching, signals, timeout=None)
        if signalled is None:
            watching.result()
            return await connection.client.get_session(name), None
        return await _leave(name, connection, watching, signals, signalled)
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)


async def _leave(
    name: str, connection: Connection, watching: asyncio.Task[None], signals: asyncio.Queue[int], signalled: int
) -> tuple[session_pb2.Session, int]:
    if signalled == signal.SIGTERM or connection.kind != "stack":
        if connection.kind == "stack":
            say(f"\nstopping; {name} goes on when a server runs on this data folder (dressage serve)")
        else:
            say(f"\n{name} goes on at {connection.client.address}\n{hints(name, connection)}")
        code = _TERMINATED if signalled == signal.SIGTERM else _INTERRUPTED
        return await connection.client.get_session(name), code
    say("\ncancelling the session; Ctrl-C again leaves at once")
    await connection.client.cancel_session(name, reason="cancelled by Ctrl-C")
    await _first(watching, signals, timeout=_CANCEL_SECONDS)
    return await connection.client.get_session(name), _INTERRUPTED


def say(text: str) -> None:
    """A remark to the person, beside the results."""
    print(text, file=sys.stderr, flush=True)


async def _first(watching: asyncio.Task[None], signals: asyncio.Queue[int], *, timeout: float | None) -> int | None:
    """The first signal, or None once the watch ended or time is up."""
    signalled = asyncio.create_task(signals.get())
    try:
        await asyncio.wait({watching, signalled}, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        return signalled.result() if signalled.done() and not watching.done() else None
    finally:
        signalled.cancel()


@asynccontextmanager
async def _signals() -> AsyncIterator[asyncio.Queue[int]]:
    """SIGINT and SIGTERM as a queue instead of an exception, as long as a session is under way."""
    loop, queue = asyncio.get_running_loop(), asyncio.Queue[int](maxsize=8)

    def arrived(number: int) -> None:
        if not queue.full():
            queue.put_nowait(number)

    numbers = (signal.SIGINT, signal.SIGTERM)
    for number in numbers:
        loop.add_signal_handler(number, arrived, number)
    try:
        yield queue
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)


async def show(name: str, connection: Connection, *, as_json: bool) -> None:
    """Shows a session's events until it ends: a live picture on a terminal, lines elsewhere."""
    view = screen.first_view(await connection.client.get_session(name))
    with screen.opened(view, stream=sys.stderr if as_json else None) as update:
        async for response in connection.client.watch_session(name):
            view = progress.advance(view, response.event)
            update(view, response.event)
