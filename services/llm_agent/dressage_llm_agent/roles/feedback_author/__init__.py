"""The feedback author: one module with the class `Feedback`."""

from __future__ import annotations

from dressage.api.internal.v1 import agent_service_pb2 as agent_pb
from dressage.envs.cards import EnvironmentCard

from dressage_llm_agent.provider.base import Message
from dressage_llm_agent.roles import policy_prompts, prompts
from dressage_llm_agent.roles.base import Role
from dressage_llm_agent.roles.replies import class_source


class FeedbackAuthor(Role[agent_pb.FeedbackAuthorTask]):
    """Environment to a class that summarises trajectories."""

    template_remedy = policy_prompts.REMEDY

    def messages(self, task: agent_pb.FeedbackAuthorTask, card: EnvironmentCard) -> tuple[Message, ...]:
        return prompts.opening(
            self.name,
            brief=task.brief,
            card=policy_prompts.environment(card, task.horizon),
            **policy_prompts.contract(card),
        )

    def parse(self, text: str, task: agent_pb.FeedbackAuthorTask) -> agent_pb.FeedbackCode:
        return agent_pb.FeedbackCode(source=class_source(text, subject="feedback"))


ROLE = FeedbackAuthor
