"""The elicitor: one JSON object of criteria and questions."""

from __future__ import annotations

from typing import Any

from dressage.api.internal.v1 import agent_service_pb2 as agent_pb
from dressage.api.v1 import session_pb2
from dressage.envs.cards import EnvironmentCard

from dressage_llm_agent.provider.base import Message
from dressage_llm_agent.roles import prompts
from dressage_llm_agent.roles.base import ReplyProblem, Role
from dressage_llm_agent.roles.replies import json_object

FEWEST, MOST = 5, 10
CATEGORIES = ("gait", "posture", "dynamics", "stability", "efficiency")
_MOST_QUESTIONS = 8
# Limits of the public message that contains the criteria.
_TITLE, _DESCRIPTION = 200, 2000


class Elicitor(Role[agent_pb.ElicitorTask]):
    """Intent to measurable criteria."""

    def messages(self, task: agent_pb.ElicitorTask, card: EnvironmentCard) -> tuple[Message, ...]:
        categories = " | ".join(CATEGORIES)
        return prompts.opening(
            self.name,
            brief=task.brief,
            card=prompts.environment(task.brief, card),
            fewest=FEWEST,
            most=MOST,
            categories=categories,
        )

    def parse(self, text: str, task: agent_pb.ElicitorTask) -> agent_pb.ElicitorResult:
        data = json_object(text)
        entries = data.get("criteria")
        if not isinstance(entries, list) or not FEWEST <= len(entries) <= MOST:
            actual = f"{len(entries)} entries" if isinstance(entries, list) else type(entries).__name__
            raise ReplyProblem(f"'criteria' must be a list of {FEWEST} to {MOST} objects, not {actual}")
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
        return agent_pb.ElicitorResult(criteria=criteria, questions=questions[:_MOST_QUESTIONS])


def _criterion(index: int, entry: Any, problems: list[str]) -> session_pb2.IntentCriterion:
    path = f"criteria[{index}]"
    if not isinstance(entry, dict) or not isinstance(entry.get("title"), str) or not entry["title"].strip():
        problems.append(f"{path} must be an object with a 'title'")
        return session_pb2.IntentCriterion(title=f"? {index}")
    description, category = entry.get("description"), entry.get("category")
    if not isinstance(description, str) or not any(character.isdigit() for character in description):
        problems.append(f"{path}.description must say what is measured, with a threshold in numbers")
        description = ""
    if category not in CATEGORIES:
        problems.append(f"{path}.category is {str(category)[:40]!r}; it must be one of {', '.join(CATEGORIES)}")
        category = ""
    default_on = entry.get("default_on", True)
    if not isinstance(default_on, bool):
        problems.append(f"{path}.default_on must be true or false")
    return session_pb2.IntentCriterion(
        title=entry["title"].strip()[:_TITLE],
        description=description[:_DESCRIPTION],
        category=str(category),
        default_on=default_on is True,
    )


ROLE = Elicitor
