"""The fixer: what was changed, and one module."""

from __future__ import annotations

from dressage.contracts.namespace import REWARD_NAMES
from dressage.envs.cards import EnvironmentCard
from dressage.envs.describe import describe

from dressage_llm_agent.provider.base import Message, ToolSpec
from dressage_llm_agent.roles import prompts
from dressage_llm_agent.roles.replies import prose, python_source, sections
from dressage_llm_agent.tasks import FixedCode, FixerTask


class Fixer:
    """See `dressage_llm_agent.roles.base.Role`."""

    name = "fixer"
    tools: tuple[ToolSpec, ...] = ()
    tool_rounds = 0

    def messages(self, task: FixerTask, card: EnvironmentCard) -> tuple[Message, ...]:
        """See `Role`."""
        return prompts.opening(
            self.name,
            brief=task.brief,
            card=describe(card),
            subject=task.subject,
            source=task.source,
            failures=task.failures,
            round=task.round,
            earlier=task.earlier_explanations,
            array_names=" ".join(sorted(REWARD_NAMES)),
        )

    def parse(self, text: str, task: FixerTask) -> FixedCode:
        """See `Role`."""
        source = python_source(text, function=task.subject)
        return FixedCode(source, sections(text).get("explanation") or prose(text))


ROLE = Fixer()
