"""Answers a question of the synthesiser about frames."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from dressage.api.internal.v1 import agent_service_pb2 as agent_pb
from dressage.envs.cards import EnvironmentCard

from dressage_llm_agent.provider.base import Message, ToolSpec
from dressage_llm_agent.roles import prompts
from dressage_llm_agent.roles.base import ReplyProblem
from dressage_llm_agent.roles.replies import json_object
from dressage_llm_agent.roles.video import attachments, template_values
from dressage_llm_agent.tasks import Dialect

_ANSWER = 4000


@dataclass(frozen=True)
class VideoQuestion:
    """See `dressage_llm_agent.roles.base.Role`.

    :param dialect: how the model is sent the frames.
    """

    dialect: Dialect
    name: ClassVar[str] = "video_question"
    tools: ClassVar[tuple[ToolSpec, ...]] = ()
    tool_rounds: ClassVar[int] = 0

    def messages(self, task: agent_pb.VideoQuestionTask, card: EnvironmentCard) -> tuple[Message, ...]:
        """See `Role`; the last message has the frames attached."""
        opening = prompts.opening(
            self.name,
            brief=task.brief,
            title=card.title,
            description=card.description,
            footage=template_values([task.video], self.dialect),
            question=task.question,
        )
        return prompts.with_attachments(opening, attachments([task.video], self.dialect))

    def parse(self, text: str, task: agent_pb.VideoQuestionTask) -> agent_pb.VideoAnswer:
        """See `Role`."""
        data = json_object(text)
        answer, certain = data.get("answer"), data.get("certain", True)
        if not isinstance(answer, str) or not answer.strip() or not isinstance(certain, bool):
            raise ReplyProblem("there must be an 'answer', a string, and 'certain', true or false")
        return agent_pb.VideoAnswer(answer=answer.strip()[:_ANSWER], certain=certain)
