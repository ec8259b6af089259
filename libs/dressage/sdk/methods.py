"""The settings of a method, according to the descriptor of its message.

A method of the API is a field of `SessionSpec`. Any other is a plug-in: an entry point of the group `dressage.methods` in this
Python environment, whose object has the type of its settings. A plug-in is imported only if its name is given, or if one of
its messages is read.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.metadata import entry_points
from typing import Any

from google.protobuf.message import Message

from dressage import errors
from dressage.api.v1 import session_pb2 as pb
from dressage.sdk.fields import set_fields

GROUP = "dressage.methods"
REWARD = "reward"
CUSTOM = "custom"
TARGET = "target"
"""Field of the settings of search methods: the mean return required to succeed."""


def api_methods() -> list[str]:
    """Return the methods of the API."""
    fields = pb.SessionSpec.DESCRIPTOR.oneofs_by_name["method_spec"].fields
    return [field.name for field in fields if field.name != CUSTOM]


def plugins() -> list[str]:
    """Return the methods that installed packages add to those of the API."""
    return sorted({entry.name for entry in entry_points(group=GROUP)} - set(api_methods()))


@cache
def _spec_type(name: str) -> Any:
    """Return the type of a plug-in's settings.

    :raises FailedPrecondition: if the plug-in cannot be imported.
    """
    (entry, *_) = entry_points(group=GROUP, name=name)
    try:
        return entry.load().spec_type
    except Exception as error:  # a plug-in may raise anything
        message = f"the plug-in {name!r} ({entry.value}) cannot be imported: {type(error).__name__}: {error}"
        raise errors.FailedPrecondition(message, reason="METHOD_BROKEN") from error


def import_plugins() -> None:
    """Import the installed plug-ins, so that their messages can be read; broken plug-ins are skipped."""
    broken_plugins()


def broken_plugins() -> list[str]:
    """Import the plug-ins and return the errors of those that cannot be imported."""
    messages = []
    for name in plugins():
        try:
            _spec_type(name)
        except errors.FailedPrecondition as error:
            messages.append(error.message)
    return messages


def method_of(spec: pb.SessionSpec) -> str:
    """Return the method of a spec; for a plug-in that is not installed, the full name of its settings."""
    chosen = spec.WhichOneof("method_spec") or REWARD
    if chosen != CUSTOM:
        return chosen
    full_name = spec.custom.TypeName()
    matches = (name for name in plugins() if _spec_type(name).DESCRIPTOR.full_name == full_name)
    return next(matches, full_name)


def settings_of(spec: pb.SessionSpec) -> Message | None:
    """Return the settings of a spec's method; None for a plug-in that is not installed, and if no method is set."""
    chosen = spec.WhichOneof("method_spec")
    if chosen is None:
        return None
    if chosen != CUSTOM:
        message: Message = getattr(spec, chosen)
        return message
    name = method_of(spec)
    if name not in plugins():
        return None
    unpacked: Message = _spec_type(name)()
    spec.custom.Unpack(unpacked)
    return unpacked


def target_of(spec: pb.SessionSpec) -> float | None:
    """Return the target of a spec's method; None if it has none."""
    message = settings_of(spec)
    field = None if message is None else message.DESCRIPTOR.fields_by_name.get(TARGET)
    if message is None or field is None or (field.has_presence and not message.HasField(TARGET)):
        return None
    return float(getattr(message, TARGET))


def set_method(spec: pb.SessionSpec, name: str, settings: Mapping[str, Any], *, field: str = "settings") -> None:
    """Set the method of a spec and its settings; other settings that the spec has are kept.

    :param settings: values by field, see `dressage.sdk.fields.set_fields`.
    :param field: the argument of the settings, for errors.
    :raises InvalidArgument: naming the argument and what is possible.
    """
    if name in api_methods():
        message = getattr(spec, name)
        message.SetInParent()
        set_fields(message, settings, field=field)
        return
    if name not in plugins():
        others = plugins()
        expected = f"one of {', '.join(api_methods() + others)}" + ("" if others else "; no plug-in is installed")
        raise errors.InvalidArgument(field="method", problem="unknown method", value=name, expected=expected)
    message = _spec_type(name)()
    if spec.HasField("custom"):
        spec.custom.Unpack(message)
    set_fields(message, settings, field=field)
    spec.custom.Pack(message)


def refuse_target(method: str, target: float) -> None:
    """Refuse a target for a method that has no such setting.

    :raises InvalidArgument: if the method is known and has none.
    """
    if method in api_methods():
        descriptor = pb.SessionSpec.DESCRIPTOR.fields_by_name[method].message_type
    else:
        descriptor = _spec_type(method).DESCRIPTOR if method in plugins() else None
    if descriptor is not None and TARGET not in descriptor.fields_by_name:
        problem = f"the method {method!r} has no target"
        expected = "a search method, such as parameters"
        remedy = "Set the threshold." if method == REWARD else ""
        raise errors.InvalidArgument(field=TARGET, problem=problem, value=target, expected=expected, remedy=remedy)
