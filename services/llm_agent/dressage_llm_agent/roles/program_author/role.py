"""The program author: a program in Python and in the DSL, or in one of them."""

from __future__ import annotations

from typing import Any

from dressage.api.internal.v1 import agent_service_pb2 as agent_pb
from dressage.programs.tasks_text import task_text

from dressage_llm_agent.provider.base import Message, ToolSpec
from dressage_llm_agent.roles import prompts
from dressage_llm_agent.roles.program_prompts import PYTHONIC, programs_of, prompt_values


class ProgramAuthor:
    """See `dressage_llm_agent.roles.base.Role`."""

    name = "program_author"
    tools: tuple[ToolSpec, ...] = ()
    tool_rounds = 0

    def messages(self, task: agent_pb.ProgramAuthorTask, card: Any) -> tuple[Message, ...]:
        """See `Role`. The number of the reply is not in the prompt: all replies answer the same one."""
        return prompts.opening(self.name, **prompt_values(task.task, task.form or PYTHONIC, task.brief))

    def parse(self, text: str, task: agent_pb.ProgramAuthorTask) -> agent_pb.Programs:
        """See `Role`."""
        return programs_of(text, task_text(task.task), form=task.form or PYTHONIC)


ROLE = ProgramAuthor()
