"""The program reviser: a new program from evaluated ones, or from an episode of the best one."""

from __future__ import annotations

from typing import Any

from dressage.api.internal.v1 import agent_service_pb2 as agent_pb
from dressage.errors import InvalidArgument
from dressage.programs.recorded import NO_RECORDED_PROGRAMS

from dressage_llm_agent.provider.base import Message
from dressage_llm_agent.roles import prompts
from dressage_llm_agent.roles.base import Role
from dressage_llm_agent.roles.program_prompts import PYTHONIC, prompt_values, result_of, shown_programs, task_of

_TRACES = ("agent_trace", "program_trace")


class ProgramReviser(Role[agent_pb.ProgramReviserTask]):
    """Evaluated programs to new programs."""

    has_card = False
    temperature = 1.0  # replies to the same prompt have to differ
    no_recording = NO_RECORDED_PROGRAMS

    def messages(self, task: agent_pb.ProgramReviserTask, card: Any) -> tuple[Message, ...]:
        """Return the first messages.

        :raises InvalidArgument: for a trace variant without a trace, no trials, or a trial that is no program.
        """
        if task.variant in _TRACES and not task.trace.strip():
            raise InvalidArgument(
                field="trace", problem="missing", value=task.trace, expected=f"an episode, for variant {task.variant}"
            )
        if not task.trials:
            raise InvalidArgument(field="trials", problem="missing", expected="at least one evaluated program")
        values = prompt_values(task.task, PYTHONIC, task.brief)
        programs, left_out = shown_programs(
            task.trials, task_of(task.task).language, best_first=task.variant != "regeneration"
        )
        return prompts.opening(
            self.name, **values, variant=task.variant, programs=programs, left_out=left_out, trace=task.trace
        )

    def parse(self, text: str, task: agent_pb.ProgramReviserTask) -> agent_pb.Programs:
        return result_of(text, task.task)


ROLE = ProgramReviser
