"""The reviser: diagnosis, lesson, base iteration, planned change and one module."""

from __future__ import annotations

import re

from dressage.api.internal.v1 import agent_service_pb2 as agent_pb
from dressage.contracts.namespace import REWARD_NAMES
from dressage.envs.cards import EnvironmentCard

from dressage_llm_agent.history import hyperparameters_message, past_iteration
from dressage_llm_agent.provider.base import Message
from dressage_llm_agent.roles import prompts
from dressage_llm_agent.roles.base import ReplyProblem, Role
from dressage_llm_agent.roles.replies import missing_sections, python_source, sections
from dressage_llm_agent.roles.reviser.annotations import (
    parse_addressed_notes,
    parse_lesson,
    parse_lesson_updates,
    parse_start,
)
from dressage_llm_agent.roles.reviser.hyperparameters import STEPS, offered, parse_hyperparameters, preset_of
from dressage_llm_agent.roles.reviser.tools import TOOLS

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
            hyperparameters="\n".join(f"- {line}" for line in offered(task)),
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
