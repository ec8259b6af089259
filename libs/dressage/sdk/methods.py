"""`--method NAME` and `--set FIELD=VALUE`: the settings of a session's method, by the descriptor of its message.

A method of the API is a field of `SessionSpec`. Any other is a plug-in: an entry point of the group `dressage.methods` in this
environment, whose object names the message of its settings. Plug-ins are imported only when one is asked for, or when a
message of theirs is read.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache
from importlib.metadata import entry_points
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from dressage import errors
from dressage.api.v1 import session_pb2 as pb

GROUP = "dressage.methods"
REWARD = "reward"
CUSTOM = "custom"

TRUTH = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}
_WHOLE_NUMBERS = {
    FieldDescriptor.CPPTYPE_INT32: "a whole number of 32 bits",
    FieldDescriptor.CPPTYPE_INT64: "a whole number of 64 bits",
    FieldDescriptor.CPPTYPE_UINT32: "a whole number of 32 bits, at least 0",
    FieldDescriptor.CPPTYPE_UINT64: "a whole number of 64 bits, at least 0",
}


def api_methods() -> list[str]:
    """The methods that the API knows by name."""
    fields = pb.SessionSpec.DESCRIPTOR.oneofs_by_name["method_spec"].fields
    return [field.name for field in fields if field.name != CUSTOM]


def plugins() -> list[str]:
    """The methods that packages of this environment register besides the API's."""
    return sorted({entry.name for entry in entry_points(group=GROUP)} - set(api_methods()))


@cache
def _spec_type(name: str) -> Any:
    """The message of a plug-in's settings.

    :raises FailedPrecondition: when the plug-in cannot be imported.
    """
    (entry, *_) = entry_points(group=GROUP, name=name)
    try:
        return entry.load().spec_type
    except Exception as error:  # whatever a stranger's module raises
        message = f"--method: the plug-in {name!r} ({entry.value}) cannot be imported: {type(error).__name__}: {error}"
        raise errors.FailedPrecondition(message, reason="METHOD_BROKEN") from error


def import_plugins() -> None:
    """Import the plug-ins of this environment, so that their messages can be read; those of a broken one stay unreadable."""
    broken_plugins()


def broken_plugins() -> list[str]:
    """Import the plug-ins; what is wrong with those that cannot be imported."""
    found = []
    for name in plugins():
        try:
            _spec_type(name)
        except errors.FailedPrecondition as error:
            found.append(error.message.removeprefix("--method: "))
    return found


def method_of(spec: pb.SessionSpec) -> str:
    """The name of a spec's method; the full name of its settings for a plug-in that is not installed here."""
    chosen = spec.WhichOneof("method_spec") or REWARD
    if chosen != CUSTOM:
        return chosen
    wanted = spec.custom.TypeName()
    known = (name for name in plugins() if _spec_type(name).DESCRIPTOR.full_name == wanted)
    return next(known, wanted)


def set_method(spec: pb.SessionSpec, name: str, settings: Sequence[str]) -> None:
    """Give a spec its method and settings of it; settings that it has already stay where no new ones replace them.

    :param settings: ``FIELD=VALUE``; a repeated field is given several times.
    :raises InvalidArgument: naming the option and what is known.
    """
    if name in api_methods():
        message = getattr(spec, name)
        message.SetInParent()
        set_fields(message, settings)
        return
    if name not in plugins():
        others = plugins()
        expected = f"one of {', '.join(api_methods() + others)}" + ("" if others else "; no plug-in is installed here")
        raise errors.InvalidArgument(field="--method", value=name, expected=expected)
    message = _spec_type(name)()
    if spec.HasField("custom"):
        spec.custom.Unpack(message)
    set_fields(message, settings)
    spec.custom.Pack(message)


def set_fields(message: Message, settings: Sequence[str]) -> None:
    """Set fields of a message from ``FIELD=VALUE``; a field of a message in it is written ``outer.inner``.

    :raises InvalidArgument: for an unknown field, a value that is not of its kind, a field that is given twice.
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
            owner.ClearField(field.name)  # also a list that a recording brought: it is replaced, not extended
        elif not field.is_repeated:
            raise errors.InvalidArgument(field=f"--set {path}", value=text, expected="one value")
        seen.add(path)
        _set(owner, field, value, path)


def _known(descriptor: Any) -> str:
    return ", ".join(descriptor.fields_by_name) or "(it has none)"


def _field(message: Message, path: str) -> tuple[Message, Any]:
    """The message that holds a field, and the field."""
    outer, _, inner = path.partition(".")
    field = message.DESCRIPTOR.fields_by_name.get(outer)
    if field is None:
        raise errors.InvalidArgument(field="--set", value=path, expected=f"one of {_known(message.DESCRIPTOR)}")
    if field.message_type is None:
        if inner:
            raise errors.InvalidArgument(field="--set", value=path, expected=f"{outer}, which has no fields of its own")
        return message, field
    if field.is_repeated:
        expected = "another field: lists of messages cannot be given by --set"
        raise errors.InvalidArgument(field="--set", value=path, expected=expected)
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
    except (ValueError, KeyError, OverflowError) as error:  # protobuf refuses numbers that the field cannot hold
        raise errors.InvalidArgument(field=f"--set {path}", value=text, expected=expected) from error


def _conversion(field: Any) -> tuple[Callable[[str], Any], str]:
    """How a field's value is read, and what is expected of its text."""
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
    """Numbers of an enum's values by name, in lower case and without the enum's own name before it; not 'unspecified'."""
    names = {value.name: value.number for value in field.enum_type.values}
    prefix = (
        "".join(f"_{letter}" if letter.isupper() else letter for letter in field.enum_type.name).lstrip("_").upper()
    )
    short = {name.removeprefix(f"{prefix}_").lower(): number for name, number in names.items()}
    return {name: number for name, number in short.items() if name != "unspecified"}
