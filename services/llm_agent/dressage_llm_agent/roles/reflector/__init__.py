"""The reflector: a few sentences."""

from __future__ import annotations

from dressage.api.internal.v1 import agent_service_pb2 as agent_pb
from dressage.envs.cards import EnvironmentCard

from dressage_llm_agent.provider.base import Message
from dressage_llm_agent.roles import policy_prompts, prompts
from dressage_llm_agent.roles.base import ReplyProblem, Role
from dressage_llm_agent.roles.replies import blocks

MAX_CHARACTERS = 4000
"""Longest reflection; it is quoted in every later prompt."""


class Reflector(Role[agent_pb.ReflectorTask]):
    """Results of earlier rounds to a reflection."""

    template_remedy = policy_prompts.REMEDY

    def messages(self, task: agent_pb.ReflectorTask, card: EnvironmentCard) -> tuple[Message, ...]:
        return prompts.opening(
            self.name,
            brief=task.brief,
            card=policy_prompts.environment(card, 0),
            history=policy_prompts.policy_trials(task.history),
        )

    def parse(self, text: str, task: agent_pb.ReflectorTask) -> agent_pb.Reflection:
        problems = []
        if blocks(text):
            problems.append("the reply contains a code block; reply with three or four sentences of plain text")
        if len(text.strip()) > MAX_CHARACTERS:
            problems.append(f"the reply has {len(text.strip())} characters; reply with three or four sentences")
        if problems:
            raise ReplyProblem(*problems)
        return agent_pb.Reflection(text=text.strip())


ROLE = Reflector
