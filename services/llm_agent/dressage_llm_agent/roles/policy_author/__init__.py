"""The policy author: an explanation and one module with the class `Policy`."""

from __future__ import annotations

from dressage.api.internal.v1 import agent_service_pb2 as agent_pb
from dressage.envs.cards import EnvironmentCard

from dressage_llm_agent.provider.base import Message
from dressage_llm_agent.roles import policy_prompts, prompts
from dressage_llm_agent.roles.base import Role
from dressage_llm_agent.roles.replies import class_source, prose, sections


class PolicyAuthor(Role[agent_pb.PolicyAuthorTask]):
    """Intent and earlier policies to a policy in Python."""

    template_remedy = policy_prompts.REMEDY

    def messages(self, task: agent_pb.PolicyAuthorTask, card: EnvironmentCard) -> tuple[Message, ...]:
        # The number of the candidate is not in the prompt: all candidates of a round have the same one.
        history = policy_prompts.policy_trials(task.history)
        return prompts.opening(
            self.name,
            brief=task.brief,
            card=policy_prompts.environment(card, task.horizon),
            round=task.round,
            history=history,
            feedback=any(entry.feedback for entry in history),
            reflection=task.reflection,
            target=f"{task.target:g}" if task.HasField("target") else None,
            notes=task.notes,
            **policy_prompts.contract(card, act_seconds=task.act_seconds),
        )

    def parse(self, text: str, task: agent_pb.PolicyAuthorTask) -> agent_pb.PolicyCode:
        source = class_source(text, subject="policy")
        return agent_pb.PolicyCode(source=source, explanation=sections(text).get("explanation") or prose(text))


ROLE = PolicyAuthor
