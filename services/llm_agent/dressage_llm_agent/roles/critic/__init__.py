"""The critic: an explanation and one revised vector of parameters."""

from __future__ import annotations

from dressage.api.internal.v1 import agent_service_pb2 as agent_pb
from dressage.envs.cards import EnvironmentCard

from dressage_llm_agent.provider.base import Message
from dressage_llm_agent.roles import parameters, prompts
from dressage_llm_agent.roles.base import Role
from dressage_llm_agent.roles.episodes import describe_episodes
from dressage_llm_agent.roles.parameters import read_explanation, read_parameters


class Critic(Role[agent_pb.CriticTask]):
    """Parameters and their rollouts to revised parameters."""

    template_remedy = parameters.REMEDY

    def messages(self, task: agent_pb.CriticTask, card: EnvironmentCard) -> tuple[Message, ...]:
        form = task.form
        return prompts.opening(
            self.name,
            brief=task.brief,
            card=describe_episodes(card, one_hot=form.kind != "table"),
            structure=parameters.structure(form, card),
            form=form,
            example=parameters.example(form),
            described=True,
            proposal=parameters.trial(task.proposal, form),
            history=parameters.trials(task.history, form),
            evidence=task.evidence,
            focus=task.focus,
            iteration=task.iteration,
            iterations=task.iterations,
            optimum=f"{task.optimum:g}" if task.HasField("optimum") else None,
            step_size=f"{task.step_size:g}" if task.step_size else "",
            threshold=f"{task.revision_threshold:g}" if task.HasField("revision_threshold") else None,
            notes=task.notes,
        )

    def parse(self, text: str, task: agent_pb.CriticTask) -> agent_pb.ProposedParameters:
        return agent_pb.ProposedParameters(values=read_parameters(text, task.form), explanation=read_explanation(text))


ROLE = Critic
