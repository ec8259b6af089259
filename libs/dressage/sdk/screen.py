"""A session's events on the screen: a live picture in a terminal, lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TextIO

from dressage.api.v1 import event_pb2, session_pb2
from dressage.sdk import progress

_PROGRESS_LINE_SECONDS = 10.0

Update = Callable[[progress.View, event_pb2.Event], None]
"""Shows the view after an event."""


def first_view(session: session_pb2.Session) -> progress.View:
    """The view of a session before its first event."""
    # A session that is joined late has run for a while; a clock that differs must not make that negative.
    ran = max(0.0, time.time() - session.start_time.ToSeconds()) if session.HasField("start_time") else 0.0
    return progress.View(
        session=session.name,
        started=time.monotonic() - ran,
        max_iterations=session.spec.max_iterations,
        method=session.method,
        goal=session.goal,
    )


def opened(view: progress.View, *, stream: TextIO | None = None) -> AbstractContextManager[Update]:
    """Show a session's events, until the end of the context.

    :param stream: where lines are written; None: standard output, which is a live picture if it is a terminal.
    """
    if stream is None and sys.stdout.isatty():
        return _live(view)
    return _lines(stream or sys.stdout)


@contextmanager
def _live(view: progress.View) -> Iterator[Update]:
    from rich.console import Console
    from rich.live import Live

    from dressage.sdk.picture import render

    current = [view]

    def update(new: progress.View, _: event_pb2.Event) -> None:
        current[0] = new

    console = Console(highlight=False)
    with Live(get_renderable=lambda: render(current[0], now=time.monotonic()), console=console, refresh_per_second=4):
        yield update


@contextmanager
def _lines(stream: TextIO) -> Iterator[Update]:
    """One line for each event; progress at most every 10 s."""
    last_time, last_text = float("-inf"), ""

    def update(view: progress.View, event: event_pb2.Event) -> None:
        nonlocal last_time, last_text
        if event.WhichOneof("payload") == "progress":
            if time.monotonic() - last_time < _PROGRESS_LINE_SECONDS:
                return
            last_time = time.monotonic()
        text = progress.line(event, method=view.method)
        if text and text != last_text:
            last_text = text
            print(text, file=stream, flush=True)

    yield update
