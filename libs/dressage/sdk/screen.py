"""A session's events on the screen: a live picture in a terminal, lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Literal, TextIO

from dressage.api.v1 import event_pb2, session_pb2
from dressage.sdk import event_lines, progress
from dressage.sdk.checkpoints import Checkpoints
from dressage.sdk.texts import seconds_waited
from dressage.terminal import PrintableStream, make_console

_PROGRESS_LINE_SECONDS = 10.0
_SEARCH_LINES = 20
_SEARCH_LINE_SECONDS = 60.0
_IMPROVEMENT_SECONDS = 5.0

Detail = Literal["quiet", "normal", "verbose"]
"""How much of a session is shown while it runs."""

Update = Callable[[progress.View, event_pb2.Event], None]
"""Shows the view after an event."""


def first_view(session: session_pb2.Session, *, flags: str = "") -> progress.View:
    """The view of a session before its first event.

    :param flags: see `View.flags`.
    """
    # A session that is joined late has run for a while; a clock that differs must not make that negative.
    ran = time.time() - session.start_time.ToSeconds() - seconds_waited(session)
    ran = max(0.0, ran) if session.HasField("start_time") else 0.0
    target = progress.target(session)
    return progress.View(
        session=session.name,
        started=time.monotonic() - ran,
        max_iterations=session.spec.max_iterations,
        method=session.method,
        flags=flags,
        goal=session.goal if target is None else f"{target:g}",
        evaluations=session.spec.reward.evaluations,
        checkpoints=Checkpoints(judged=not session.spec.reward.train_only),
    )


def display(
    view: progress.View, *, stream: TextIO | None = None, detail: Detail = "normal"
) -> AbstractContextManager[Update]:
    """Show a session's events, until the end of the context.

    :param detail: `quiet` shows nothing, `verbose` has a line for each event, also in a terminal.
    :param stream: where lines are written; None: standard output, which is a live picture if it is a terminal.
    """
    if detail == "quiet":
        return nullcontext(lambda view, event: None)
    if stream is None and sys.stdout.isatty() and detail == "normal":
        return _live(view)
    return _lines(PrintableStream(stream or sys.stdout), verbose=detail == "verbose")


@contextmanager
def _live(view: progress.View) -> Iterator[Update]:
    from rich.live import Live

    from dressage.sdk.picture import render

    current = [view]

    def update(new: progress.View, _: event_pb2.Event) -> None:
        current[0] = new

    console = make_console(sys.stdout, highlight=False)
    with Live(get_renderable=lambda: render(current[0], now=time.monotonic()), console=console, refresh_per_second=4):
        yield update


@contextmanager
def _lines(stream: PrintableStream, *, verbose: bool) -> Iterator[Update]:
    """One line for each event; progress at most every 10 s, and a bounded number of lines for the iterations of a search."""
    last_time, last_text = float("-inf"), ""
    search = _SearchLines()

    def update(view: progress.View, event: event_pb2.Event) -> None:
        nonlocal last_time, last_text
        if event.WhichOneof("payload") == "progress":
            if time.monotonic() - last_time < _PROGRESS_LINE_SECONDS:
                return
            last_time = time.monotonic()
            if (counts := progress.evaluating(view)) is not None:
                print(f"[{view.iteration}] evaluating: {counts[0]} of {counts[1]} checkpoints", file=stream, flush=True)
                return
        detail = progress.is_detail(event, view) and not verbose
        text = view.notice or (None if detail else search.text(view, event, now=time.monotonic()))
        if text and text != last_text:
            last_text = text
            print(text, file=stream, flush=True)

    yield update


class _SearchLines:
    """Selects the events of a search that have a line of their own: at most about twenty iterations, and one each minute."""

    def __init__(self) -> None:
        self._next_iteration = 0
        self._shown_at = float("-inf")
        self._improved_at = float("-inf")

    def text(self, view: progress.View, event: event_pb2.Event, *, now: float) -> str | None:
        """Return the line of an event; None for one without a line.

        :param now: in seconds, on any clock.
        """
        kind = event.WhichOneof("payload")
        if kind == "search_improved" and not event.search_improved.improvement.program:
            if now - self._improved_at < _IMPROVEMENT_SECONDS:
                return None
            self._improved_at = now
        if not progress.is_routine(event, method=view.method):
            return event_lines.line(event, method=view.method, flags=view.flags)
        due = view.iteration >= self._next_iteration or now - self._shown_at >= _SEARCH_LINE_SECONDS
        if kind != "scored" or not due:
            return None
        self._next_iteration = view.iteration + max(1, -(-view.max_iterations // _SEARCH_LINES))
        self._shown_at = now
        return progress.search_line(view)
