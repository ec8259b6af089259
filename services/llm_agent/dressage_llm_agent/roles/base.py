"""What a role is: its prompt, its tools and the form of its reply."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeVar

from google.protobuf.message import Message as Protobuf

from dressage_llm_agent.provider.base import Message, ToolSpec
from dressage_llm_agent.provider.vision import Dialect

TaskT = TypeVar("TaskT", bound=Protobuf)


class ReplyProblem(Exception):
    """A reply that cannot be used; the repair turn quotes ``problems`` to the model."""

    def __init__(self, *problems: str) -> None:
        super().__init__("; ".join(problems))
        self.problems = problems


@dataclass(frozen=True)
class Vote:
    """One reply of the video judge: a status and an observation for each criterion, in the task's order."""

    statuses: tuple[str, ...]
    observations: tuple[str, ...]
    diagnosis: str = ""


class Role(ABC, Generic[TaskT]):
    """A role of a language model; its class is the ``ROLE`` of a folder, and the folder's name is the role's field in `Task`.

    :param dialect: how the model is sent frames; only for roles that see them.
    """

    name: ClassVar[str]
    """The folder's name, also of the templates."""
    tools: ClassVar[tuple[ToolSpec, ...]] = ()
    """Tools that the model may call; the caller of the task runs them."""
    tool_rounds: ClassVar[int] = 0
    """Maximum number of replies with tool calls before the model must answer."""
    sees_frames: ClassVar[bool] = False
    """Whether the role needs a vision model."""
    has_card: ClassVar[bool] = True
    """Whether the task's environment has a card; those of programs have descriptions of their own."""
    temperature: ClassVar[float | None] = None
    """Temperature where the server's settings have none; None: the model's default."""
    template_remedy: ClassVar[str] = "configure a language model"
    """What to do if a session has no language model and the template author does not support the role."""
    no_recording: ClassVar[str] = "TEMPLATE_NO_SUCH_ROLE"
    """Reason of the error if a recording has no reply; the template author's for the same case, which callers handle."""

    def __init_subclass__(cls) -> None:
        cls.name = cls.__module__.rpartition(".")[2]

    def __init__(self, dialect: Dialect = "grid") -> None:
        self.dialect = dialect

    @abstractmethod
    def messages(self, task: TaskT, card: Any) -> tuple[Message, ...]:
        """Return the first messages of the conversation.

        :param card: the `EnvironmentCard` of the task's environment; None if the role has none.
        """

    @abstractmethod
    def parse(self, text: str, task: TaskT) -> Protobuf | Vote:
        """Return the result that a reply contains, a message of `TaskResult.result`; the video judge's is one vote.

        :raises ReplyProblem: with all problems of the reply.
        """
