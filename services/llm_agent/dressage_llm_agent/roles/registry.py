"""Tasks and their roles: the oneof `Task.role` lists the roles, and each has the folder of its name."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from dressage.api.internal.v1 import agent_service_pb2 as agent_pb
from dressage.errors import InvalidArgument
from google.protobuf.descriptor import Descriptor
from google.protobuf.message import Message as Protobuf

from dressage_llm_agent.provider.vision import Dialect
from dressage_llm_agent.roles.base import Role


def _fields(message: Descriptor, oneof: str) -> dict[str, str]:
    """The names of a oneof's fields by the full names of their messages."""
    fields = message.oneofs_by_name[oneof].fields
    return {field.message_type.full_name: field.name for field in fields if field.message_type is not None}


_ROLES = _fields(agent_pb.Task.DESCRIPTOR, "role")
_RESULTS = _fields(agent_pb.TaskResult.DESCRIPTOR, "result")


def role_task(task: agent_pb.Task) -> Any:
    """Return the message of the role that is set.

    :raises InvalidArgument: if no role is set.
    """
    name = task.WhichOneof("role")
    if name is None:
        raise InvalidArgument(field="role", value=None, expected=f"one of {', '.join(_ROLES.values())}")
    return getattr(task, name)


def role_of(task: Protobuf, *, dialect: Dialect = "grid") -> Role[Any]:
    """Return the role that performs a task.

    :param dialect: how the model is sent frames, for the roles that see them.
    """
    role: type[Role[Any]] = import_module(f"{__package__}.{_ROLES[task.DESCRIPTOR.full_name]}").ROLE
    return role(dialect)


def task_result(result: Protobuf) -> agent_pb.TaskResult:
    """Return the last message of a conversation, with the result alone."""
    message = agent_pb.TaskResult()
    getattr(message, _RESULTS[result.DESCRIPTOR.full_name]).CopyFrom(result)
    return message
