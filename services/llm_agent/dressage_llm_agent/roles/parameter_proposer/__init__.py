"""The parameter proposer: an explanation and one vector of parameters."""

from __future__ import annotations

from dressage.api.internal.v1 import agent_service_pb2 as agent_pb
from dressage.envs.cards import EnvironmentCard

from dressage_llm_agent.provider.base import Message
from dressage_llm_agent.roles import parameters, prompts
from dressage_llm_agent.roles.base import Role
from dressage_llm_agent.roles.episodes import describe_episodes
from dressage_llm_agent.roles.parameters import read_explanation, read_parameters


class ParameterProposer(Role[agent_pb.ParameterProposerTask]):
    """Evaluated parameters to new parameters."""

    template_remedy = parameters.REMEDY

    def messages(self, task: agent_pb.ParameterProposerTask, card: EnvironmentCard) -> tuple[Message, ...]:
        """Return the first messages, without environment and intent unless ``describe_environment``."""
        form = task.form
        return prompts.opening(
            self.name,
            brief=task.brief,
            card=describe_episodes(card, one_hot=form.kind != "table"),
            structure=parameters.structure(form, card),
            form=form,
            example=parameters.example(form),
            described=task.describe_environment,
            measure="mean return" if task.describe_environment else "value",
            history=parameters.trials(task.history, form),
            iteration=task.iteration,
            iterations=task.iterations,
            optimum=f"{task.optimum:g}" if task.HasField("optimum") else None,
            step_size=f"{task.step_size:g}" if task.step_size and not form.choices else "",
            previous=parameters.trial(task.previous, form) if task.HasField("previous") else None,
            evidence=task.evidence,
            self_critique=task.self_critique,
            notes=task.notes,
        )

    def parse(self, text: str, task: agent_pb.ParameterProposerTask) -> agent_pb.ProposedParameters:
        return agent_pb.ProposedParameters(values=read_parameters(text, task.form), explanation=read_explanation(text))


ROLE = ParameterProposer
