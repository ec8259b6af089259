"""Answers a question of the synthesiser about frames."""

from __future__ import annotations

from dressage.api.internal.v1 import agent_service_pb2 as agent_pb
from dressage.envs.cards import EnvironmentCard

from dressage_llm_agent.provider.base import Message
from dressage_llm_agent.roles import prompts
from dressage_llm_agent.roles.base import ReplyProblem, Role
from dressage_llm_agent.roles.replies import json_object
from dressage_llm_agent.roles.video import attachments, template_values

_ANSWER = 4000


class VideoQuestion(Role[agent_pb.VideoQuestionTask]):
    """Frames of an episode and a question to an answer."""

    sees_frames = True

    def messages(self, task: agent_pb.VideoQuestionTask, card: EnvironmentCard) -> tuple[Message, ...]:
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
        data = json_object(text)
        answer, certain = data.get("answer"), data.get("certain", True)
        if not isinstance(answer, str) or not answer.strip() or not isinstance(certain, bool):
            raise ReplyProblem("there must be an 'answer', a string, and 'certain', true or false")
        return agent_pb.VideoAnswer(answer=answer.strip()[:_ANSWER], certain=certain)


ROLE = VideoQuestion
