"""The elicitor: one JSON object of criteria and questions."""

from __future__ import annotations

from typing import Any

from dressage.envs.cards import EnvironmentCard

from dressage_llm_agent.provider.base import Message, ToolSpec
from dressage_llm_agent.roles import prompts
from dressage_llm_agent.roles.base import ReplyProblem
from dressage_llm_agent.roles.replies import json_object
from dressage_llm_agent.tasks import Criterion, ElicitorResult, ElicitorTask

_MOST_CRITERIA = 16
_MOST_QUESTIONS = 8
# Bounds of the public message that criteria end up in.
_TITLE, _DESCRIPTION, _CATEGORY = 200, 2000, 60


class Elicitor:
    """See `dressage_llm_agent.roles.base.Role`."""

    name = "elicitor"
    tools: tuple[ToolSpec, ...] = ()

    def messages(self, task: ElicitorTask, card: EnvironmentCard) -> tuple[Message, ...]:
        """See `Role`."""
        return prompts.opening(self.name, brief=task.brief, card=card.describe())

    def parse(self, text: str, task: ElicitorTask) -> ElicitorResult:
        """See `Role`."""
        data = json_object(text)
        entries = data.get("criteria")
        if not isinstance(entries, list) or not entries:
            raise ReplyProblem("'criteria' must be a list of at least one object")
        problems: list[str] = []
        criteria = [_criterion(index, entry, problems) for index, entry in enumerate(entries[:_MOST_CRITERIA])]
        questions = data.get("questions", [])
        if not isinstance(questions, list) or not all(isinstance(question, str) for question in questions):
            problems.append("'questions' must be a list of strings")
        if problems:
            raise ReplyProblem(*problems)
        return ElicitorResult(tuple(criteria), tuple(questions[:_MOST_QUESTIONS]))


def _criterion(index: int, entry: Any, problems: list[str]) -> Criterion:
    if not isinstance(entry, dict) or not isinstance(entry.get("title"), str) or not entry["title"].strip():
        problems.append(f"criteria[{index}] must be an object with a 'title'")
        return Criterion("?")
    texts = {name: entry.get(name) or "" for name in ("description", "category")}
    for name, value in texts.items():
        if not isinstance(value, str):
            problems.append(f"criteria[{index}].{name} must be a string")
            texts[name] = ""
    default_on = entry.get("default_on", True)
    if not isinstance(default_on, bool):
        problems.append(f"criteria[{index}].default_on must be true or false")
    title = entry["title"].strip()[:_TITLE]
    return Criterion(title, texts["description"][:_DESCRIPTION], texts["category"][:_CATEGORY], default_on is True)


ROLE = Elicitor()
