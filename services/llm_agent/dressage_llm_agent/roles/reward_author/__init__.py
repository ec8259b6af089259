"""The reward author: reasoning and one module, also to repair its own."""

from __future__ import annotations

from dressage.api.internal.v1 import agent_service_pb2 as agent_pb
from dressage.contracts.namespace import REWARD_NAMES
from dressage.envs.cards import EnvironmentCard

from dressage_llm_agent.provider.base import Message
from dressage_llm_agent.roles import prompts
from dressage_llm_agent.roles.base import ReplyProblem, Role
from dressage_llm_agent.roles.replies import prose, python_source, sections
from dressage_llm_agent.roles.reward_author.environment import SECTION, offered, parse_environment


class RewardAuthor(Role[agent_pb.RewardAuthorTask]):
    """Intent to reward."""

    def messages(self, task: agent_pb.RewardAuthorTask, card: EnvironmentCard) -> tuple[Message, ...]:
        names = " ".join(sorted(REWARD_NAMES))
        return prompts.opening(
            self.name,
            brief=task.brief,
            card=prompts.environment(task.brief, card),
            array_names=names,
            subject="reward",
            repair=task.repair if task.HasField("repair") else None,
            options=offered(task, card),
        )

    def parse(self, text: str, task: agent_pb.RewardAuthorTask) -> agent_pb.RewardProposal:
        """Return the proposal. Reasoning may be below its heading or anywhere outside of the code."""
        problems: list[str] = []
        source = ""
        try:
            source = python_source(text, function="reward")
        except ReplyProblem as problem:
            problems += problem.problems
        written = sections(text)
        why = written.get(SECTION.lower(), "")
        options = parse_environment(text, why, task, problems)
        if problems:
            raise ReplyProblem(*problems)
        return agent_pb.RewardProposal(
            source=source,
            reasoning=written.get("reasoning") or prose(text),
            environment_options=options,
            environment_reasoning=why if options is not None else "",
        )


ROLE = RewardAuthor
