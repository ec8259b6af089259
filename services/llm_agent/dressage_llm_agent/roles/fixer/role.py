"""The fixer: an explanation of the changes and one module."""

from __future__ import annotations

from dressage.api.internal.v1 import agent_service_pb2 as agent_pb
from dressage.contracts.namespace import REWARD_NAMES
from dressage.envs.cards import EnvironmentCard

from dressage_llm_agent.provider.base import Message, ToolSpec
from dressage_llm_agent.roles import policy_prompts, prompts
from dressage_llm_agent.roles.replies import CLASSES, class_source, prose, python_source, sections


class Fixer:
    """See `dressage_llm_agent.roles.base.Role`."""

    name = "fixer"
    tools: tuple[ToolSpec, ...] = ()
    tool_rounds = 0

    def messages(self, task: agent_pb.FixerTask, card: EnvironmentCard) -> tuple[Message, ...]:
        """See `Role`."""
        searched = task.subject in CLASSES
        return prompts.opening(
            self.name,
            brief=task.brief,
            card=policy_prompts.environment(card, 0) if searched else prompts.environment(task.brief, card),
            subject=task.subject,
            searched=searched,
            source=task.source,
            failures=task.failures,
            round=task.round,
            earlier=task.earlier_explanations,
            array_names=" ".join(sorted(REWARD_NAMES)),
            **policy_prompts.contract(card),
        )

    def parse(self, text: str, task: agent_pb.FixerTask) -> agent_pb.FixedCode:
        """See `Role`."""
        code = class_source(text, subject=task.subject) if task.subject in CLASSES else None
        source = code or python_source(text, function=task.subject)
        return agent_pb.FixedCode(source=source, explanation=sections(text).get("explanation") or prose(text))


ROLE = Fixer()
