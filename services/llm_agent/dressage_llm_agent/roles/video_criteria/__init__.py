"""Visual criteria of an intent: one JSON object. A session has them written once and applies them to all rollouts."""

from __future__ import annotations

from typing import Any

from dressage.api.internal.v1 import agent_service_pb2 as agent_pb
from dressage.envs.cards import EnvironmentCard

from dressage_llm_agent.provider.base import Message
from dressage_llm_agent.roles import prompts
from dressage_llm_agent.roles.base import ReplyProblem, Role
from dressage_llm_agent.roles.replies import json_object

FEWEST, MOST = 3, 6
MOMENTS = ("throughout", "start", "end", "fastest", "turning", "highest", "lowest")
"""When a criterion shows; judge places the decisive window accordingly."""
_TITLE, _DESCRIPTION = 120, 600


class VideoCriteria(Role[agent_pb.VideoCriteriaTask]):
    """Intent to criteria that are visible in frames."""

    def messages(self, task: agent_pb.VideoCriteriaTask, card: EnvironmentCard) -> tuple[Message, ...]:
        return prompts.opening(
            self.name, brief=task.brief, card=prompts.environment(task.brief, card), fewest=FEWEST, most=MOST
        )

    def parse(self, text: str, task: agent_pb.VideoCriteriaTask) -> agent_pb.VideoCriteriaResult:
        entries = json_object(text).get("criteria")
        if not isinstance(entries, list) or not FEWEST <= len(entries) <= MOST:
            raise ReplyProblem(f"'criteria' must be a list of {FEWEST} to {MOST} objects")
        problems: list[str] = []
        criteria = [_criterion(index, entry, problems) for index, entry in enumerate(entries)]
        titles = [criterion.title.lower() for criterion in criteria]
        problems += [f"two criteria have the title {t!r}" for t in sorted(set(titles)) if titles.count(t) > 1]
        if problems:
            raise ReplyProblem(*problems)
        return agent_pb.VideoCriteriaResult(criteria=criteria)


def _criterion(index: int, entry: Any, problems: list[str]) -> agent_pb.VisualCriterion:
    texts = [entry.get(name) if isinstance(entry, dict) else None for name in ("title", "description")]
    title, description = (text.strip() if isinstance(text, str) else "" for text in texts)
    if not title or not description:
        problems.append(f"criteria[{index}] must be an object with a 'title' and a 'description'")
        return agent_pb.VisualCriterion(title=f"? {index}")
    # Recorded replies of earlier versions name no moment.
    moment = entry.get("moment") or MOMENTS[0]
    if moment not in MOMENTS:
        problems.append(
            f"criteria[{index}] has the moment {str(moment)[:40]!r}; it must be one of {', '.join(MOMENTS)}"
        )
        moment = MOMENTS[0]
    return agent_pb.VisualCriterion(title=title[:_TITLE], description=description[:_DESCRIPTION], moment=moment)


ROLE = VideoCriteria
