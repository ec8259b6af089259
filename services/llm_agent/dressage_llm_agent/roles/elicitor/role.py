"""The elicitor: one JSON object of criteria and questions."""

from __future__ import annotations

from typing import Any

from dressage.envs.cards import EnvironmentCard
from dressage.envs.describe import describe

from dressage_llm_agent.provider.base import Message, ToolSpec
from dressage_llm_agent.roles import prompts
from dressage_llm_agent.roles.base import ReplyProblem
from dressage_llm_agent.roles.replies import json_object
from dressage_llm_agent.tasks import Criterion, ElicitorResult, ElicitorTask

FEWEST, MOST = 5, 10
CATEGORIES = ("gait", "posture", "dynamics", "stability", "efficiency")
_MOST_QUESTIONS = 8
# Bounds of the public message that criteria end up in.
_TITLE, _DESCRIPTION = 200, 2000


class Elicitor:
    """See `dressage_llm_agent.roles.base.Role`."""

    name = "elicitor"
    tools: tuple[ToolSpec, ...] = ()
    tool_rounds = 0

    def messages(self, task: ElicitorTask, card: EnvironmentCard) -> tuple[Message, ...]:
        """See `Role`."""
        categories = " | ".join(CATEGORIES)
        return prompts.opening(
            self.name, brief=task.brief, card=describe(card), fewest=FEWEST, most=MOST, categories=categories
        )

    def parse(self, text: str, task: ElicitorTask) -> ElicitorResult:
        """See `Role`."""
        data = json_object(text)
        entries = data.get("criteria")
        if not isinstance(entries, list) or not FEWEST <= len(entries) <= MOST:
            seen = f"{len(entries)} entries" if isinstance(entries, list) else type(entries).__name__
            raise ReplyProblem(f"'criteria' must be a list of {FEWEST} to {MOST} objects, not {seen}")
        problems: list[str] = []
        criteria = [_criterion(index, entry, problems) for index, entry in enumerate(entries)]
        titles = [criterion.title.lower() for criterion in criteria]
        problems += [
            f"two criteria have the title {title!r}" for title in sorted({t for t in titles if titles.count(t) > 1})
        ]
        questions = data.get("questions", [])
        if not isinstance(questions, list) or not all(isinstance(question, str) for question in questions):
            problems.append("'questions' must be a list of strings")
        if problems:
            raise ReplyProblem(*problems)
        return ElicitorResult(tuple(criteria), tuple(questions[:_MOST_QUESTIONS]))


def _criterion(index: int, entry: Any, problems: list[str]) -> Criterion:
    where = f"criteria[{index}]"
    if not isinstance(entry, dict) or not isinstance(entry.get("title"), str) or not entry["title"].strip():
        problems.append(f"{where} must be an object with a 'title'")
        return Criterion(f"? {index}")
    description, category = entry.get("description"), entry.get("category")
    if not isinstance(description, str) or not any(character.isdigit() for character in description):
        problems.append(f"{where}.description must say what is measured, with a threshold in numbers")
        description = ""
    if category not in CATEGORIES:
        problems.append(f"{where}.category is {str(category)[:40]!r}; it must be one of {', '.join(CATEGORIES)}")
        category = ""
    default_on = entry.get("default_on", True)
    if not isinstance(default_on, bool):
        problems.append(f"{where}.default_on must be true or false")
    return Criterion(entry["title"].strip()[:_TITLE], description[:_DESCRIPTION], str(category), default_on is True)


ROLE = Elicitor()
