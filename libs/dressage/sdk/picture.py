"""Draws the view of a session for a terminal."""

from __future__ import annotations

from typing import Any

from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from dressage.api.v1 import session_pb2
from dressage.sdk.event_lines import phase_text
from dressage.sdk.progress import MemberView, View, evaluating, search_parts
from dressage.sdk.texts import duration, return_text, short

_BAR_WIDTH = 24


def render(view: View, *, now: float) -> RenderableType:
    """Draw the view at a time.

    :param now: in seconds, on the clock of `view.started`.
    """
    parts: list[RenderableType] = [_headline(view, now)]
    if view.members:
        parts.append(_members(view))
    parts.extend(Text(line, style="dim", overflow="ellipsis", no_wrap=True) for line in view.lines)
    return Group(*parts)


def _headline(view: View, now: float) -> Text:
    of = f"/{view.max_iterations}" if view.max_iterations else ""
    state = session_pb2.SessionState.Name(view.state).removeprefix("SESSION_STATE_").lower()
    text = Text(short(view.session), style="bold")
    text.append(f"  iteration {view.iteration}{of}" if view.iteration else f"  {state}", style="not bold")
    doing = phase_text(view.phase, view.method)
    if (counts := evaluating(view)) is not None:
        doing = f"evaluating {counts[0]} of {counts[1]} checkpoints"
    if view.queue:
        doing = view.queue
    if doing is not None:
        text.append(f"  {doing}", style="cyan not bold")
    details = [duration(now - view.started)]
    if view.steps_per_second > 0:
        details.append(f"{view.steps_per_second:,.0f} steps/s")
    if view.seconds_left > 0:
        details.append(f"{duration(view.seconds_left)} left")
    details += search_parts(view)
    if view.dollars > 0:
        details.append(f"{view.dollars:.4f} $")
    text.append("  " + " · ".join(details), style="dim not bold")
    return text


def _members(view: View) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for name in ("member", "", "steps", "steps/s", "left", "return", "stock return", "m/s", "score"):
        table.add_column(name, justify="left" if name in ("member", "") else "right", no_wrap=True)
    running = sum(1 for member in view.members.values() if member.steps < member.target and not member.failure)
    rate = view.steps_per_second / running if running else 0.0
    for name, member in view.members.items():
        table.add_row(*_row(name, member, rate))
    return table


def _row(name: str, member: MemberView, rate: float) -> list[Any]:
    left = member.target - member.steps
    training = rate > 0 and left > 0 and not member.failure
    return [
        Text(name, style="red" if member.failure else ""),
        ProgressBar(total=max(member.target, 1), completed=member.steps, width=_BAR_WIDTH),
        f"{member.steps:,}",
        f"{rate:,.0f}" if training else "",
        duration(left / rate) if training else "",
        "" if member.episode_return is None else return_text(member.episode_return),
        "" if member.stock_return is None else return_text(member.stock_return),
        _number(member.speed, "{:.2f}"),
        _number(member.score, "{:.2f}"),
    ]


def _number(value: float | None, form: str) -> str:
    return "" if value is None else form.format(value)
