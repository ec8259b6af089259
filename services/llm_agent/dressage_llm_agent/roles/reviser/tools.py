"""The tools that the caller of a revision offers."""

from __future__ import annotations

from typing import Any

from dressage_llm_agent.provider.base import ToolSpec

_NUMBER: dict[str, Any] = {"type": "integer", "minimum": 1, "description": "number of an iteration, from 1"}


def _object(properties: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


TOOLS: tuple[ToolSpec, ...] = (
    ToolSpec(
        "get_iteration",
        "All of one iteration: reward, judgment, scores, diagnosis, lesson, hyperparameters, warnings.",
        _object({"number": _NUMBER}),
    ),
    ToolSpec(
        "compare_iterations",
        "Two iterations side by side: their scores by criterion and the unified diff of their rewards.",
        _object({"first": _NUMBER, "second": _NUMBER}),
    ),
    ToolSpec("get_scores", "The score of every iteration so far, in order, with its parent.", _object({})),
)
