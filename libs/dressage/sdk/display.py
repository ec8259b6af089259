"""Results as HTML for notebooks: self-contained, with the picture and the video inside."""

from __future__ import annotations

import base64
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

from dressage.errors import DressageError

if TYPE_CHECKING:
    from dressage.sdk.results import Judgment, Result

_MAX_BYTES = 8 << 20
"""Larger files are named instead of embedded: a notebook keeps what it shows."""
_COLOURS = {"succeeded": "#1a7f37", "exhausted": "#9a6700", "cancelled": "#9a6700", "failed": "#cf222e"}


def result_html(result: Result) -> str:
    """The HTML of a session's result."""
    score = "no score" if result.score is None else f"score {result.score:.2f}"
    goal = f" (goal {escape(result.goal)})" if result.goal and result.score is not None else ""
    colour = _COLOURS.get(result.state, "inherit")
    facts = [
        f"{result.env_steps:,} environment steps",
        *([f"{result.seconds:.0f} s"] if result.seconds is not None else []),
        *([f"return {result.stock_return:.1f}"] if result.stock_return is not None else []),
        *([f"{result.cost.dollars:.4f} $"] if result.cost.dollars else []),
    ]
    parts = [
        f"<h4>{escape(result.intent)} · {escape(result.environment)}</h4>",
        f'<p><b style="color:{colour}">{escape(result.state)}</b>, <b>{score}</b>{goal}<br>{", ".join(facts)}<br>'
        f"<code>{escape(result.session)}</code></p>",
        _judgments(result),
        image(result.curve.picture) if result.curve is not None else "",
        _video(result),
    ]
    return "\n".join(filter(None, parts))


def _judgments(result: Result) -> str:
    judgments = {"score": result.judgment, "fresh seeds": result.confirmation}
    shown = {name: judgment for name, judgment in judgments.items() if judgment is not None}
    if not shown:
        return ""
    criteria = dict.fromkeys(name for judgment in shown.values() for name in judgment.criteria)
    head = "".join(f"<th>{escape(name)}</th>" for name in ("", *shown))
    rows = [("score", [_with_interval(judgment) for judgment in shown.values()])]
    rows += [(name, [_number(judgment.criteria.get(name)) for judgment in shown.values()]) for name in criteria]
    body = "".join(
        f"<tr><td>{escape(name)}</td>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>" for name, cells in rows
    )
    return f"<table><tr>{head}</tr>{body}</table>"


def _with_interval(judgment: Judgment) -> str:
    text = f"{judgment.score:.2f}"
    if judgment.interval is not None:
        text += f" ({judgment.interval[0]:.2f} to {judgment.interval[1]:.2f})"
    return text


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def image(path: Path | None) -> str:
    """A PNG file as an ``img`` element; empty if there is none."""
    data = _embedded(path)
    return f'<img alt="learning curve" style="max-width:640px" src="data:image/png;base64,{data}">' if data else ""


def _video(result: Result) -> str:
    try:
        path = result.video
    except DressageError as error:  # what is shown must not depend on a server that is gone
        return f"<p>video: {escape(error.message)}</p>"
    data = _embedded(path)
    if data:
        return f'<video controls loop style="max-width:480px" src="data:video/mp4;base64,{data}"></video>'
    return f"<p>video: <code>{escape(str(path))}</code></p>" if path is not None else ""


def _embedded(path: Path | None) -> str:
    if path is None or not path.is_file() or path.stat().st_size > _MAX_BYTES:
        return ""
    return base64.b64encode(path.read_bytes()).decode("ascii")
