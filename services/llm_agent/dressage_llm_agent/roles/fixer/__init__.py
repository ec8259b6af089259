"""The fixer of policies and feedback classes: an explanation of the changes and one module."""

from __future__ import annotations

from dressage.api.internal.v1 import agent_service_pb2 as agent_pb
from dressage.envs.cards import EnvironmentCard

from dressage_llm_agent.provider.base import Message
from dressage_llm_agent.roles import policy_prompts, prompts
from dressage_llm_agent.roles.base import Role
from dressage_llm_agent.roles.replies import class_source, prose, sections


class Fixer(Role[agent_pb.FixerTask]):
    """Check failures to repaired code."""

    no_recording = "TEMPLATE_CANNOT_FIX"

    def messages(self, task: agent_pb.FixerTask, card: EnvironmentCard) -> tuple[Message, ...]:
        return prompts.opening(
            self.name,
            brief=task.brief,
            card=policy_prompts.environment(card, 0),
            subject=task.subject,
            source=task.source,
            failures=task.failures,
            round=task.round,
            earlier=task.earlier_explanations,
            **policy_prompts.contract(card),
        )

    def parse(self, text: str, task: agent_pb.FixerTask) -> agent_pb.FixedCode:
        source = class_source(text, subject=task.subject)
        return agent_pb.FixedCode(source=source, explanation=sections(text).get("explanation") or prose(text))


ROLE = Fixer
