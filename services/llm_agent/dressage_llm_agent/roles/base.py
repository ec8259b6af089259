"""What a role is."""

from __future__ import annotations

from typing import Generic, Protocol, TypeVar

from dressage.envs.cards import EnvironmentCard

from dressage_llm_agent.provider.base import Message, ToolSpec
from dressage_llm_agent.tasks import AnyResult

TaskT = TypeVar("TaskT", contravariant=True)


class ReplyProblem(Exception):
    """A reply that cannot be used; ``problems`` are quoted to the model in the repair turn."""

    def __init__(self, *problems: str) -> None:
        super().__init__("; ".join(problems))
        self.problems = problems


class Role(Protocol, Generic[TaskT]):
    """A part that a language model plays."""

    @property
    def name(self) -> str:
        """In lower_snake_case; also the folder of its templates."""
        ...

    @property
    def tools(self) -> tuple[ToolSpec, ...]:
        """What it may ask the caller for."""
        ...

    @property
    def tool_rounds(self) -> int:
        """Replies with tool calls that it may give before it must answer."""
        ...

    def messages(self, task: TaskT, card: EnvironmentCard) -> tuple[Message, ...]:
        """How the conversation begins."""
        ...

    def parse(self, text: str, task: TaskT) -> AnyResult:
        """The typed result that a reply holds.

        :raises ReplyProblem: with everything that is wrong with it.
        """
        ...
