"""The reviser: diagnosis, lesson, base iteration, planned change and one module."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any

from dressage.api.internal.v1 import agent_service_pb2 as agent_pb
from dressage.contracts.namespace import REWARD_NAMES
from dressage.envs.cards import EnvironmentCard
from dressage.envs.describe import describe
from dressage.training import sac
from dressage.training.hyperparameters import RULES

from dressage_llm_agent.history import HyperparameterValue, hyperparameters_message, past_iteration
from dressage_llm_agent.provider.base import Message, ToolSpec
from dressage_llm_agent.roles import prompts
from dressage_llm_agent.roles.base import ReplyProblem
from dressage_llm_agent.roles.replies import blocks, missing_sections, python_source, sections
from dressage_llm_agent.roles.reviser.annotations import parse_addressed_notes, parse_lesson, parse_lesson_updates
from dressage_llm_agent.roles.reviser.tools import TOOLS

STUCK = 3
"""Iterations without a new best after which the prompt requests a structural rewrite."""

TOOL_ROUNDS = 16
_Bounds = tuple[float, float, bool]
# Name to (lowest, highest, whole number), as in the prompt; the orchestrator clips other values to these bounds.
_HYPERPARAMETERS: dict[str, _Bounds] = {
    name: (*rule.recommended, rule.whole) for name, rule in RULES.items() if rule.recommended is not None
}
_LARGEST = 2**31 - 1


class Reviser:
    """See `dressage_llm_agent.roles.base.Role`."""

    name = "reviser"
    tools: tuple[ToolSpec, ...] = TOOLS
    tool_rounds = TOOL_ROUNDS

    def messages(self, task: agent_pb.ReviserTask, card: EnvironmentCard) -> tuple[Message, ...]:
        """See `Role`."""
        offered = _offered(task)
        bounds = (f"{name} ({low:g} to {high:g})" for name, (low, high, _) in offered.items())
        return prompts.opening(
            self.name,
            brief=task.brief,
            card=describe(card),
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
            hyperparameters=", ".join(bounds),
            array_names=" ".join(sorted(REWARD_NAMES)),
            max_rounds=TOOL_ROUNDS,
        )

    def parse(self, text: str, task: agent_pb.ReviserTask) -> agent_pb.Revision:
        """See `Role`."""
        problems: list[str] = []
        source = ""
        try:
            source = python_source(text, function="reward")
        except ReplyProblem as problem:
            problems += problem.problems
        written = sections(text)
        problems += missing_sections(written, ["Diagnosis", "Lesson", "Based on", "Planned change"])
        based_on = _based_on(written.get("based on", ""), task, problems)
        changes = _hyperparameters(text, problems, _offered(task)) if task.tune_hyperparameters else {}
        if changes and not written.get("hyperparameters"):
            problems.append("'## Hyperparameters' must say why each of them changes")
        addressed = parse_addressed_notes(written.get("notes", ""), task.notes, problems)
        updates = parse_lesson_updates(written.get("lesson updates", ""), task.known_lessons, problems)
        if problems:
            raise ReplyProblem(*problems)
        tier, lesson = parse_lesson(written["lesson"])
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
            hyperparameter_reasoning=written.get("hyperparameters", "") if changes else "",
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


def _offered(task: agent_pb.ReviserTask) -> Mapping[str, _Bounds]:
    """The hyperparameters of the algorithm; for SAC without the entropy coefficient, which it tunes by itself."""
    if task.algorithm != "sac":
        return _HYPERPARAMETERS
    names = set(sac.HYPERPARAMETERS) - {"entropy_coef"}
    return {name: bounds for name, bounds in _HYPERPARAMETERS.items() if name in names}


def _hyperparameters(text: str, problems: list[str], offered: Mapping[str, _Bounds]) -> dict[str, HyperparameterValue]:
    objects = [block for block in blocks(text) if block.language == "json"]
    if not objects:
        return {}
    try:
        data = json.loads(objects[0].text)
    except ValueError as error:
        problems.append(f"the JSON of '## Hyperparameters' cannot be read ({error})")
        return {}
    if not isinstance(data, dict) or len(objects) > 1:
        problems.append("'## Hyperparameters' must hold one JSON object")
        return {}
    changes: dict[str, HyperparameterValue] = {}
    for name, value in data.items():
        if (problem := _hyperparameter_problem(name, value, offered)) is not None:
            problems.append(problem)
        else:
            changes[name] = int(value) if offered[name][2] else float(value)
    return changes


def _hyperparameter_problem(name: str, value: Any, offered: Mapping[str, _Bounds]) -> str | None:
    if name not in offered:
        return f"there is no hyperparameter {name!r}; there are {', '.join(offered)}"
    low, high, whole = offered[name]
    number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if not number or abs(value) > _LARGEST or (whole and value != int(value)):
        kind = "a whole number" if whole else "a number"
        return f"{name} is {value!r}; it must be {kind} from {low:g} to {high:g}"
    return None


ROLE = Reviser()
