"""A trace as plain JSON data, and the recorded episode of a program, which a page plays step by step.

The program of an episode is printed as Python and as DSL text. A step names its statement, and each text has the line of
every statement, so that a reader highlights the executing line in either.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from dressage.programs.pretty import Printout, to_indented, to_python
from dressage.programs.syntax import Program
from dressage.programs.trace import Contents, Step, Trace

FORMAT = "dressage.program_episode/1"
MAX_STEPS = 5_000
"""Steps of an episode that are recorded."""


def step_values(step: Step) -> dict[str, Any]:
    """Return what a step has; entries without content and the cells around the agent are left out."""
    return {key: value for key, value in asdict(step).items() if key != "view" and value not in ((), None)}


def episode_json(task: str, profile: str, state: int, program: Program, traced: Trace) -> str:
    """Return an episode as JSON.

    The object has ``format``, ``task``, ``profile``, ``state``, ``texts`` (``python`` and ``dsl``, each with ``text`` and the
    ``lines`` of the statements in preorder, from 1), ``grid`` (``rows``, ``columns``, ``walls``, ``markers`` and ``objects`` at
    the beginning), ``legend``, ``start`` (the agent), ``steps``, ``left_out`` (steps beyond the first 5,000), ``return``,
    ``actions``, ``calls``, ``terminated`` and ``crashed``. A step is that of `step_values`, with ``statement``, its number
    in preorder from 0, instead of ``line``.

    :param traced: of ``program`` as Python, as `trace` prints it by default.
    """
    texts = {"python": to_python(program), "dsl": to_indented(program)}
    statement = {line: number for number, line in enumerate(texts["python"].lines)}
    steps = [step_values(step) for step in traced.steps[:MAX_STEPS]]
    for step in steps:
        step["statement"] = statement[step.pop("line")]
    values = {
        "format": FORMAT,
        "task": task,
        "profile": profile,
        "state": state,
        "texts": {name: _text(printout) for name, printout in texts.items()},
        "grid": _grid(traced.contents),
        "legend": traced.legend,
        "start": asdict(traced.start),
        "steps": steps,
        "left_out": max(0, len(traced.steps) - MAX_STEPS),
        "return": traced.total,
        "actions": traced.actions,
        "calls": traced.calls,
        "terminated": traced.terminated,
        "crashed": traced.crashed or traced.exhausted,
    }
    return json.dumps(values, separators=(",", ":"))


def _text(printout: Printout) -> dict[str, Any]:
    return {"text": printout.text, "lines": list(printout.lines)}


def _grid(contents: Contents) -> dict[str, Any]:
    return {
        "rows": contents.rows,
        "columns": contents.columns,
        "walls": [list(place) for place in sorted(contents.walls)],
        "markers": [[*place, count] for place, count in sorted(contents.markers.items()) if count],
        "objects": [[*place, name] for place, name in sorted(contents.objects.items()) if name],
    }
