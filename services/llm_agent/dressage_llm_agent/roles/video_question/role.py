"""A question on pictures: the synthesiser's eyes."""

from __future__ import annotations

from dressage.envs.cards import EnvironmentCard

from dressage_llm_agent.provider.base import Message, ToolSpec
from dressage_llm_agent.roles import prompts
from dressage_llm_agent.roles.base import ReplyProblem
from dressage_llm_agent.roles.pictures import attachments
from dressage_llm_agent.roles.replies import json_object
from dressage_llm_agent.tasks import VideoAnswer, VideoQuestionTask

_ANSWER = 4000


class VideoQuestion:
    """See `dressage_llm_agent.roles.base.Role`."""

    name = "video_question"
    tools: tuple[ToolSpec, ...] = ()
    tool_rounds = 0

    def messages(self, task: VideoQuestionTask, card: EnvironmentCard) -> tuple[Message, ...]:
        """See `Role`; the pictures go with the last message."""
        opening = prompts.opening(
            self.name,
            brief=task.brief,
            title=card.title,
            description=card.description,
            footage=task.footage,
            question=task.question,
        )
        return prompts.with_attachments(opening, attachments(task.footage))

    def parse(self, text: str, task: VideoQuestionTask) -> VideoAnswer:
        """See `Role`."""
        data = json_object(text)
        answer, certain = data.get("answer"), data.get("certain", True)
        if not isinstance(answer, str) or not answer.strip() or not isinstance(certain, bool):
            raise ReplyProblem("there must be an 'answer', a string, and 'certain', true or false")
        return VideoAnswer(answer.strip()[:_ANSWER], certain)


ROLE = VideoQuestion()
