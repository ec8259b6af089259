"""`--method NAME` and `--set FIELD=VALUE`: the settings of a method, according to the descriptor of its message.

A method of the API is a field of `SessionSpec`. Any other is a plug-in: an entry point of the group `dressage.methods` in this
Python environment, whose object has the type of its settings. A plug-in is imported only if its name is given, or if one of
its messages is read.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from dressage import errors
from dressage.api.v1 import session_pb2 as pb
from dressage.sdk.files import read_source

GROUP = "dressage.methods"
REWARD = "reward"
CUSTOM = "custom"
_SOURCE = "_source"
TARGET = "target"
"""Field of the settings of search methods: the mean return required to succeed."""

TRUTH = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}
_WHOLE_NUMBERS = {
    FieldDescriptor.CPPTYPE_INT32: "a whole number of 32 bits",
    FieldDescriptor.CPPTYPE_INT64: "a whole number of 64 bits",
    FieldDescriptor.CPPTYPE_UINT32: "a whole number of 32 bits, at least 0",
    FieldDescriptor.CPPTYPE_UINT64: "a whole number of 64 bits, at least 0",
}


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
        message = f"--method: the plug-in {name!r} ({entry.value}) cannot be imported: {type(error).__name__}: {error}"
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
            messages.append(error.message.removeprefix("--method: "))
    return messages


def method_of(spec: pb.SessionSpec) -> str:
    """Return the method of a spec; for a plug-in that is not installed, the full name of its settings."""
    chosen = spec.WhichOneof("method_spec") or REWARD
    if chosen != CUSTOM:
        return chosen
    full_name = spec.custom.TypeName()
    known = (name for name in plugins() if _spec_type(name).DESCRIPTOR.full_name == full_name)
    return next(known, full_name)


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


def target_setting(method: str, target: float) -> str:
    """Return `--target` as a setting of the method.

    :raises InvalidArgument: if the method has no such setting.
    """
    if method in api_methods():
        descriptor = pb.SessionSpec.DESCRIPTOR.fields_by_name[method].message_type
    else:
        descriptor = _spec_type(method).DESCRIPTOR if method in plugins() else None
    if descriptor is not None and TARGET not in descriptor.fields_by_name:
        remedy = "Use --threshold." if method == REWARD else ""
        problem = f"the method {method!r} has no target"
        expected = "a search method, such as --method parameters"
        raise errors.InvalidArgument(field="--target", problem=problem, value=target, expected=expected, remedy=remedy)
    return f"{TARGET}={target!r}"


def set_method(spec: pb.SessionSpec, name: str, settings: Sequence[str]) -> None:
    """Set the method of a spec and its settings; other settings that the spec has are kept.

    :param settings: ``FIELD=VALUE``; several for a repeated field.
    :raises InvalidArgument: naming the option and the known values.
    """
    if name in api_methods():
        message = getattr(spec, name)
        message.SetInParent()
        set_fields(message, settings)
        return
    if name not in plugins():
        others = plugins()
        expected = f"one of {', '.join(api_methods() + others)}" + ("" if others else "; no plug-in is installed")
        raise errors.InvalidArgument(field="--method", problem="unknown method", value=name, expected=expected)
    message = _spec_type(name)()
    if spec.HasField("custom"):
        spec.custom.Unpack(message)
    set_fields(message, settings)
    spec.custom.Pack(message)


def set_fields(message: Message, settings: Sequence[str]) -> None:
    """Set fields of a message from ``FIELD=VALUE``; a field of a nested message is written ``outer.inner``.

    The value ``@FILE`` of a field whose name ends in ``_source`` is the text of the file.

    :raises InvalidArgument: for an unknown field, a value of another type, a field that is given more than once.
    """
    seen: set[str] = set()
    for text in settings:
        path, equals, value = text.partition("=")
        path = path.strip().replace("-", "_")
        if not equals:
            expected = f"FIELD=VALUE with a field of {_known(message.DESCRIPTOR)}"
            raise errors.InvalidArgument(field="--set", value=text, expected=expected)
        owner, field = _field(message, path)
        if path not in seen:
            owner.ClearField(field.name)  # a list of a recording is replaced, not extended
        elif not field.is_repeated:
            raise errors.InvalidArgument(
                field=f"--set {path}", problem="given more than once", value=text, expected="one value"
            )
        seen.add(path)
        if path.endswith(_SOURCE) and value.startswith("@"):
            value = read_source(Path(value[1:]), field=f"--set {path}")
        _set(owner, field, value, path)


def _known(descriptor: Any) -> str:
    return ", ".join(descriptor.fields_by_name) or "(none)"


def _field(message: Message, path: str) -> tuple[Message, Any]:
    """Return the message that has a field, and the field."""
    outer, _, inner = path.partition(".")
    field = message.DESCRIPTOR.fields_by_name.get(outer)
    if field is None:
        raise errors.InvalidArgument(
            field="--set", problem="unknown field", value=path, expected=f"one of {_known(message.DESCRIPTOR)}"
        )
    if field.message_type is None:
        if inner:
            raise errors.InvalidArgument(field="--set", problem="not a message", value=path, expected=outer)
        return message, field
    if field.is_repeated:
        problem = "lists of messages are not supported"
        raise errors.InvalidArgument(field="--set", problem=problem, value=path, expected="another field")
    if not inner:
        names = ", ".join(f"{outer}.{name}" for name in field.message_type.fields_by_name)
        raise errors.InvalidArgument(field="--set", value=path, expected=f"one of {names}")
    return _field(getattr(message, outer), inner)


def _set(message: Message, field: Any, text: str, path: str) -> None:
    convert, expected = _conversion(field)
    try:
        value = convert(text.strip() if field.cpp_type != FieldDescriptor.CPPTYPE_STRING else text)
        if field.is_repeated:
            getattr(message, field.name).append(value)
        else:
            setattr(message, field.name, value)
    except (ValueError, KeyError, OverflowError) as error:  # protobuf refuses numbers out of range
        raise errors.InvalidArgument(field=f"--set {path}", value=text, expected=expected) from error


def _conversion(field: Any) -> tuple[Callable[[str], Any], str]:
    """Return how the value of a field is parsed, and the description of valid texts."""
    kind = field.cpp_type
    if field.enum_type is not None:
        numbers = _enum_numbers(field)
        return lambda text: numbers[text.lower()], f"one of {', '.join(numbers)}"
    if kind == FieldDescriptor.CPPTYPE_BOOL:
        return lambda text: TRUTH[text.lower()], "true or false"
    if kind in (FieldDescriptor.CPPTYPE_DOUBLE, FieldDescriptor.CPPTYPE_FLOAT):
        return _finite, "a number"
    if kind in _WHOLE_NUMBERS:
        return int, _WHOLE_NUMBERS[kind]
    if field.type == FieldDescriptor.TYPE_BYTES:
        return lambda text: text.encode(), "text"
    return str, "text"


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(text)
    return value


def _enum_numbers(field: Any) -> dict[str, int]:
    """Return the numbers of an enum by the lower-case names without prefix, except 'unspecified'."""
    names = {value.name: value.number for value in field.enum_type.values}
    prefix = (
        "".join(f"_{letter}" if letter.isupper() else letter for letter in field.enum_type.name).lstrip("_").upper()
    )
    short = {name.removeprefix(f"{prefix}_").lower(): number for name, number in names.items()}
    return {name: number for name, number in short.items() if name != "unspecified"}
