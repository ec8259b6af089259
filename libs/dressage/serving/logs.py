"""Structured logs: JSON for machines, text for people, with session, iteration, run and trace ids bound by context.

Callers cause entries, so an entry is bounded in size, and a traceback has no values of variables: they include tokens and
requests, and to format them takes as long as hundreds of calls.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping, MutableMapping
from contextlib import AbstractContextManager
from typing import Any, TextIO

import structlog

from dressage.terminal import printable, raw_stream

_LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}
_QUIET = ("alembic.runtime.plugins",)
"""Loggers whose messages at the level `info` are one for each plug-in of a library."""
_APART = ("dbos",)
"""Loggers that do not propagate, and write to standard error themselves if they have no handler."""
_MAX_TEXT = 4_000
"""Characters of one field of an entry."""
_MAX_TRACEBACK = 8_000
_SECRET_HINTS = ("token", "secret", "password", "api_key", "authorization")
_NOT_SECRET = frozenset({"input_tokens", "output_tokens", "tokens", "resume_token", "page_token"})


def _redact(_: Any, __: str, event: MutableMapping[str, Any]) -> Mapping[str, Any]:
    """Replace values whose key looks like that of a secret, in case one is logged by mistake."""
    for key in event:
        lowered = key.lower()
        if lowered not in _NOT_SECRET and any(hint in lowered for hint in _SECRET_HINTS):
            event[key] = "[redacted]"
    return event


def _bound(_: Any, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Cut long values; the end of a traceback has its cause."""
    return {name: _short(value, name) for name, value in event.items()}


def _short(value: Any, name: str) -> Any:
    if value is None or isinstance(value, bool | float):
        return value
    if isinstance(value, int):  # Python writes no longer ones
        return value if value.bit_length() < 10_000 else f"an integer of {value.bit_length()} bits"
    text = value if isinstance(value, str) else repr(value)
    most = _MAX_TRACEBACK if name == "exception" else _MAX_TEXT
    if len(text) <= most:
        return value
    return f"{text[: most // 2]} … {len(text) - most} characters left out … {text[-(most // 2) :]}"


def configure(*, format: str = "json", level: str = "info", stream: TextIO | None = None) -> None:
    """Configure structlog and `logging` for this process.

    :param format: ``json`` (one object a line) or ``text``.
    :param level: ``debug``, ``info``, ``warning`` or ``error``.
    :param stream: output; default: standard error.
    """
    target = stream or sys.stderr
    renderer: Any = (
        structlog.processors.JSONRenderer()
        if format == "json"
        else structlog.dev.ConsoleRenderer(colors=target.isatty(), exception_formatter=structlog.dev.plain_traceback)
    )
    if format == "text":  # JSON escapes control characters by itself
        target = raw_stream(target)
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        _redact,
        structlog.processors.format_exc_info,
        _bound,
    ]
    if format == "text":
        shared.append(_printable)
    structlog.configure(
        processors=[*shared, renderer],
        wrapper_class=structlog.make_filtering_bound_logger(_LEVELS[level]),
        logger_factory=structlog.PrintLoggerFactory(target),
        cache_logger_on_first_use=False,
    )
    handler = logging.StreamHandler(target)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, renderer], foreign_pre_chain=shared
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(_LEVELS[level])
    for name in _APART:
        logging.getLogger(name).handlers[:], logging.getLogger(name).propagate = [handler], False
    for name in _QUIET:
        logging.getLogger(name).setLevel(logging.WARNING if level == "info" else _LEVELS[level])


def _printable(_: Any, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Escape control characters in texts: intents, replies and names in generated code are logged."""
    return {name: printable(value) if isinstance(value, str) else value for name, value in event.items()}


def bind(**ids: str) -> AbstractContextManager[Any]:
    """Bind ids (session, iteration, run, …) to every line logged inside the ``with`` block, across awaits."""
    return structlog.contextvars.bound_contextvars(**ids)
