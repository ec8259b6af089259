"""The protocol of a role."""

from __future__ import annotations

from typing import Any, Generic, Protocol, TypeVar

from dressage_llm_agent.provider.base import Message, ToolSpec
from dressage_llm_agent.tasks import RoleResult, Vote

TaskT = TypeVar("TaskT", contravariant=True)


class ReplyProblem(Exception):
    """A reply that cannot be used; the repair turn quotes ``problems`` to the model."""

    def __init__(self, *problems: str) -> None:
        super().__init__("; ".join(problems))
        self.problems = problems


class Role(Protocol, Generic[TaskT]):
    """A role of a language model: its prompt, its tools and the form of its reply."""

    @property
    def name(self) -> str:
        """Name of the role's field in `Task`, and of the folder of its templates."""
        ...

    @property
    def tools(self) -> tuple[ToolSpec, ...]:
        """Tools that the model may call; the caller of the task runs them."""
        ...

    @property
    def tool_rounds(self) -> int:
        """Maximum number of replies with tool calls before the model must answer."""
        ...

    def messages(self, task: TaskT, card: Any) -> tuple[Message, ...]:
        """Return the first messages of the conversation.

        :param card: the `EnvironmentCard` of the task's environment; None for `dressage_llm_agent.tasks.ProgramsTask`.
        """
        ...

    def parse(self, text: str, task: TaskT) -> RoleResult | Vote:
        """Return the result that a reply contains; the video judge's is one vote.

        :raises ReplyProblem: with all problems of the reply.
        """
        ...
