"""The reward author: reasoning and one module."""

from __future__ import annotations

from dressage.contracts.namespace import REWARD_NAMES
from dressage.envs.cards import EnvironmentCard
from dressage.envs.describe import describe

from dressage_llm_agent.provider.base import Message, ToolSpec
from dressage_llm_agent.roles import prompts
from dressage_llm_agent.roles.replies import prose, python_source, sections
from dressage_llm_agent.tasks import RewardAuthorTask, RewardProposal


class RewardAuthor:
    """See `dressage_llm_agent.roles.base.Role`."""

    name = "reward_author"
    tools: tuple[ToolSpec, ...] = ()
    tool_rounds = 0

    def messages(self, task: RewardAuthorTask, card: EnvironmentCard) -> tuple[Message, ...]:
        """See `Role`."""
        names = " ".join(sorted(REWARD_NAMES))
        return prompts.opening(self.name, brief=task.brief, card=describe(card), array_names=names)

    def parse(self, text: str, task: RewardAuthorTask) -> RewardProposal:
        """See `Role`; reasoning may stand below its heading or anywhere outside of the code."""
        source = python_source(text, function="reward")
        return RewardProposal(source, sections(text).get("reasoning") or prose(text))


ROLE = RewardAuthor()
