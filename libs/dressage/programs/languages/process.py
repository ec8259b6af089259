"""Targets of the sandboxed processes that run a plug-in's code.

A reply is ``{"done": …}`` or ``{"refused": {"message", "reason", "field"}}``. The other side checks all that it reads.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from dressage.errors import DressageError
from dressage.programs.languages.description import Code, description_of
from dressage.programs.languages.failures import FAILED
from dressage.programs.languages.loading import KERNELS, installed_digest, load_family, load_plugin
from dressage.sandbox.pipe import Channel

_REQUEST_SECONDS = 60.0
_SHOWN = 2_000
MAX_TRACED = 5_000
"""Steps of a trace that travel."""


def register(channel: Channel) -> None:
    """Sandbox target: import a plug-in, describe and try it, and compile its kernels into the folder ``kernels``.

    The request has ``code`` and ``folder``. Replies ``{"trying": …}`` come before the last one.
    """

    def work(request: Mapping[str, Any]) -> dict[str, Any]:
        from dressage.episodes import compiling
        from dressage.programs.languages.checking import check_plugin

        code = Code.from_dict(request["code"])
        compiling.write_to(Path.cwd() / KERNELS, lambda name: channel.send({"trying": f"compiling {name}"}))
        plugin = load_plugin(code, Path(request["folder"]))
        if not code.copied:
            code = replace(code, version=installed_digest(code.module))
        description = description_of(plugin, code)
        check_plugin(plugin, description, lambda what: channel.send({"trying": what}))
        return description.to_dict()

    _serve(channel, work)


def play(channel: Channel) -> None:
    """Sandbox target: play or trace a program with a registered plug-in."""

    def work(request: Mapping[str, Any]) -> Any:
        from dressage.programs.languages.live import outcome_row
        from dressage.programs.syntax import parse

        family = load_family(request["name"])
        program = parse(request["program"], family.language)
        task, profile, states = request["task"], request["profile"], request["states"]
        if not request["trace"]:
            return [outcome_row(one) for one in family.play(task, profile, program, states)]
        traced = family.trace(task, profile, program, states[0])
        contents = traced.contents
        return {
            "grid": list(traced.grid),
            "legend": traced.legend,
            "start": asdict(traced.start),
            "steps": [asdict(step) for step in traced.steps[:MAX_TRACED]],
            "totals": [traced.total, traced.actions, traced.calls],
            "ends": [traced.terminated, traced.crashed, traced.exhausted],
            "size": [contents.rows, contents.columns],
            "walls": [list(place) for place in sorted(contents.walls)],
            "objects": [[*place, name] for place, name in sorted(contents.objects.items())],
        }

    _serve(channel, work)


def read(channel: Channel) -> None:
    """Sandbox target: find the texts of programs in replies with a registered plug-in."""

    def work(request: Mapping[str, Any]) -> list[list[str]]:
        from dressage.programs.languages.loading import load_registered, read_replies

        return read_replies(load_registered(request["name"])[0], request["replies"])

    _serve(channel, work)


def _serve(channel: Channel, work: Callable[[Mapping[str, Any]], Any]) -> None:
    """Answer one request."""
    request = channel.recv(timeout=_REQUEST_SECONDS)
    try:
        reply = {"done": work(request)}
    except DressageError as error:
        field = str(getattr(error, "field", ""))
        reply = {"refused": {"message": error.message[:_SHOWN], "reason": error.reason, "field": field}}
    except Exception as error:
        name = type(error).__name__
        text = f"the code cannot be compiled or run: {name}: {str(error).strip()}"
        reply = {"refused": {"message": text[:_SHOWN], "reason": FAILED, "field": "plugin"}}
    channel.send(reply)
