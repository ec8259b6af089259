"""The reviser: diagnosis, lesson, base iteration, planned change and one module."""

from __future__ import annotations

import re
from typing import Any

from dressage.api.internal.v1 import agent_service_pb2 as agent_pb
from dressage.contracts.namespace import REWARD_NAMES
from dressage.envs.cards import EnvironmentCard

from dressage_llm_agent.history import hyperparameters_message, past_iteration
from dressage_llm_agent.provider.base import Message, ToolSpec
from dressage_llm_agent.roles import prompts
from dressage_llm_agent.roles.base import ReplyProblem, Role
from dressage_llm_agent.roles.replies import missing_sections, python_source, sections
from dressage_llm_agent.roles.reviser.annotations import (
    parse_addressed_notes,
    parse_lesson,
    parse_lesson_updates,
    parse_start,
)
from dressage_llm_agent.roles.reviser.hyperparameters import STEPS, parse_hyperparameters, preset_of, tunable_values

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


STUCK = 3
"""Iterations without a new best after which the prompt requests a structural rewrite."""

TOOL_ROUNDS = 16


class Reviser(Role[agent_pb.ReviserTask]):
    """History to a revised reward, with tools that read the history."""

    no_recording = "TEMPLATE_NO_REVISION"
    tools = TOOLS
    tool_rounds = TOOL_ROUNDS

    def messages(self, task: agent_pb.ReviserTask, card: EnvironmentCard) -> tuple[Message, ...]:
        return prompts.opening(
            self.name,
            brief=task.brief,
            card=prompts.environment(task.brief, card),
            history=[past_iteration(message) for message in task.history],
            notes=task.notes,
            lessons=[f"{entry.number}. [{entry.tier}] {entry.text}" for entry in task.known_lessons],
            numbered_lessons=bool(task.known_lessons),
            tried_changes=task.tried_changes,
            best_iteration=task.best_iteration,
            dynamics=task.dynamics,
            iterations_without_improvement=task.iterations_without_improvement,
            rewrite=task.iterations_without_improvement >= STUCK,
            tune=task.tune_hyperparameters,
            hyperparameters="\n".join(f"- {line}" for line in tunable_values(task)),
            algorithm=task.algorithm or "ppo",
            discount=preset_of(task).discount,
            may_continue=[past_iteration(m) for m in task.history if m.number in task.may_continue_from],
            array_names=" ".join(sorted(REWARD_NAMES)),
            max_rounds=TOOL_ROUNDS,
        )

    def parse(self, text: str, task: agent_pb.ReviserTask) -> agent_pb.Revision:
        problems: list[str] = []
        source = ""
        try:
            source = python_source(text, function="reward")
        except ReplyProblem as problem:
            problems += problem.problems
        written = sections(text)
        problems += missing_sections(written, ["Diagnosis", "Lesson", "Based on", "Planned change"])
        based_on = _based_on(written.get("based on", ""), task, problems)
        changes = parse_hyperparameters(text, problems, task) if task.tune_hyperparameters else {}
        if changes and not written.get("hyperparameters"):
            problems.append("'## Hyperparameters' must say why each of them changes")
        addressed = parse_addressed_notes(written.get("notes", ""), task.notes, problems)
        updates = parse_lesson_updates(written.get("lesson updates", ""), task.known_lessons, problems)
        from_parent, why = parse_start(written.get("start", ""), based_on, task, problems)
        if problems:
            raise ReplyProblem(*problems)
        tier, lesson = parse_lesson(written["lesson"])
        reasoning = written.get("hyperparameters", "") if changes else ""
        steps = changes.pop(STEPS, 0)
        assert isinstance(steps, int)
        return agent_pb.Revision(
            diagnosis=written["diagnosis"],
            lesson=lesson,
            lesson_tier=tier,
            lesson_updates=updates,
            addressed_notes=addressed,
            structural_rewrite=task.iterations_without_improvement >= STUCK,
            planned_change=written["planned change"],
            source=source,
            based_on=based_on,
            hyperparameters=hyperparameters_message(changes),
            hyperparameter_reasoning=reasoning,
            steps_per_member=steps,
            from_parent=from_parent,
            start_reasoning=why,
        )


def _based_on(text: str, task: agent_pb.ReviserTask, problems: list[str]) -> int:
    if not text:
        return 0
    match = re.search(r"\d+", text)
    latest = max((past.number for past in task.history), default=0)
    if match is None:
        if "latest" in text.lower():
            return 0
        problems.append("'## Based on' must hold the number of an iteration")
        return 0
    number = int(match[0])
    if not 1 <= number <= max(latest, 1):
        problems.append(f"'## Based on' names iteration {number}, but there are 1 to {latest}")
    return number


ROLE = Reviser
