"""The program author: a program in Python and in the DSL, or in one of them."""

from __future__ import annotations

from typing import Any

from dressage.api.internal.v1 import agent_service_pb2 as agent_pb
from dressage.programs.recorded import NO_RECORDED_PROGRAMS

from dressage_llm_agent.provider.base import Message
from dressage_llm_agent.roles import prompts
from dressage_llm_agent.roles.base import Role
from dressage_llm_agent.roles.program_prompts import PYTHONIC, own_prompt, prompt_values, result_of


class ProgramAuthor(Role[agent_pb.ProgramAuthorTask]):
    """Task to programs."""

    has_card = False
    temperature = 1.0  # replies to the same prompt have to differ
    no_recording = NO_RECORDED_PROGRAMS

    def messages(self, task: agent_pb.ProgramAuthorTask, card: Any) -> tuple[Message, ...]:
        # The number of the reply is not in the prompt: all replies answer the same one.
        values = prompt_values(task.task, task.form or PYTHONIC, task.brief)
        if own := own_prompt(task.task, values):
            return (Message("system", prompts.render(f"{self.name}/own.j2")), Message("user", own))
        return prompts.opening(self.name, **values)

    def parse(self, text: str, task: agent_pb.ProgramAuthorTask) -> agent_pb.Programs:
        return result_of(text, task.task, form=task.form or PYTHONIC)


ROLE = ProgramAuthor
