"""The tools that read a session's history; the caller of a revision runs them."""

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


def _of_one(name: str, description: str) -> ToolSpec:
    return ToolSpec(name, description, _object({"number": _NUMBER}))


TOOLS: tuple[ToolSpec, ...] = (
    _of_one(
        "get_iteration",
        "All of one iteration: reward, judgment, scores, diagnosis, lesson, hyperparameters, warnings.",
    ),
    _of_one("get_reward_code", "The reward of one iteration, the code alone."),
    _of_one(
        "get_dynamics",
        "How one iteration's training went: returns at each evaluation and the last metrics (entropy, KL, value loss, each "
        "term's share) by config and seed, and the warnings computed from them.",
    ),
    _of_one(
        "get_judgments",
        "The judgment of one iteration: scores with their interval, criteria, each judge's verdict, the video judge's remarks "
        "on each rollout that it saw (up to 12,000 characters; get_rollouts has each rollout's in full), scores and diagnoses "
        "seed by seed, and the labels that a person gave.",
    ),
    _of_one(
        "get_rollouts",
        "The recorded episodes of one iteration: which checkpoint, p10, median or p90, returns, score, diagnosis, verdicts "
        "with remarks. Up to 60: each member's last checkpoints come first; left_out counts the others.",
    ),
    ToolSpec(
        "compare_iterations",
        "Two iterations side by side: their scores by criterion, hyperparameters, and the unified diff of their rewards.",
        _object({"first": _NUMBER, "second": _NUMBER}),
    ),
    ToolSpec("get_scores", "The score of every iteration so far, in order, with its parent and the best.", _object({})),
    ToolSpec(
        "get_lineage", "The tree of iterations: what each was based on, set out to change and scored.", _object({})
    ),
    ToolSpec(
        "get_changes", "The ledger of changes that were tried, each with the score before and after.", _object({})
    ),
    ToolSpec("get_lessons", "The lessons in force, with their tiers and the iteration that taught them.", _object({})),
)
