"""Tools over a session's history that the reviser may call, and what it is told of the training's dynamics."""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from dressage.api.v1 import session_pb2 as v1
from dressage.errors import InvalidArgument, NotFound

from dressage_orchestrator.clients import Tool
from dressage_orchestrator.statistics import mean

Runs = Mapping[int, Sequence[v1.Member]]
"""Members of each iteration's training, by its number."""


def history_tools(iterations: Sequence[v1.Iteration], members: Runs) -> dict[str, Tool]:
    """The tools ``get_iteration``, ``compare_iterations`` and ``get_scores`` over finished iterations."""
    by_number = {entry.number: entry for entry in iterations}

    def get_iteration(arguments: Mapping[str, Any]) -> str:
        return json.dumps(_describe(_pick(by_number, arguments, "iteration"), members), indent=1)

    def compare_iterations(arguments: Mapping[str, Any]) -> str:
        first, second = _pick(by_number, arguments, "first"), _pick(by_number, arguments, "second")
        return json.dumps({"diff": diff(first, second), "first": _score(first), "second": _score(second)}, indent=1)

    def get_scores(_: Mapping[str, Any]) -> str:
        return json.dumps([{"iteration": entry.number, **_score(entry)} for entry in iterations], indent=1)

    return {"get_iteration": get_iteration, "compare_iterations": compare_iterations, "get_scores": get_scores}


def _pick(iterations: Mapping[int, v1.Iteration], arguments: Mapping[str, Any], name: str) -> v1.Iteration:
    value = arguments.get(name)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or value != int(value):
        raise InvalidArgument(field=name, value=value, expected="the number of an iteration")
    if int(value) not in iterations:
        known = ", ".join(str(number) for number in iterations)
        raise NotFound(f"{name}: there is no iteration {int(value)}; there are {known}", reason="ITERATION_NOT_FOUND")
    return iterations[int(value)]


def _score(iteration: v1.Iteration) -> dict[str, Any]:
    judgment = iteration.judgment
    return {
        "score": round(judgment.score, 4),
        "interval": [round(judgment.interval_low, 4), round(judgment.interval_high, 4)],
        "criteria": {entry.name: round(entry.score, 4) for entry in judgment.criteria},
    }


def _describe(iteration: v1.Iteration, members: Runs) -> dict[str, Any]:
    return {
        "iteration": iteration.number,
        "source": iteration.source,
        "planned_change": iteration.planned_change,
        "lesson": iteration.lesson,
        "judgment": {**_score(iteration), "diagnosis": iteration.judgment.diagnosis},
        "failure_tags": list(iteration.judgment.failure_tags),
        "dynamics": dynamics(members.get(iteration.number, ())),
    }


def diff(first: v1.Iteration, second: v1.Iteration) -> str:
    """Unified diff of two proposals."""
    lines = difflib.unified_diff(
        first.source.splitlines(),
        second.source.splitlines(),
        f"iteration {first.number}",
        f"iteration {second.number}",
        lineterm="",
    )
    return "\n".join(lines)


def dynamics(members: Sequence[v1.Member]) -> str:
    """A training's course in words: returns at each evaluation and the last metrics, member by member."""
    lines = []
    for member in members:
        course = ", ".join(
            f"{entry.env_step}: {mean(entry.own_returns or entry.returns):.4g}" for entry in member.evaluations
        )
        last = ", ".join(f"{name} {value:.4g}" for name, value in sorted(member.metrics.items()))
        broke = f"; stopped: {member.failure.message}" if member.HasField("failure") else ""
        lines.append(f"config {member.config} seed {member.seed}: return by env step {course or 'none'}; {last}{broke}")
    return "\n".join(lines)
