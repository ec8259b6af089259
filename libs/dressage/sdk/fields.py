"""Fields of messages from what a user writes: values of Python, or text of a command line or a file."""

from __future__ import annotations

import math
import operator
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from dressage.errors import InvalidArgument
from dressage.sdk.files import read_source

_SOURCE = "_source"
_TRUTH = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}
_REALS = (FieldDescriptor.CPPTYPE_DOUBLE, FieldDescriptor.CPPTYPE_FLOAT)
_WHOLE_NUMBERS = {
    FieldDescriptor.CPPTYPE_INT32: "a whole number of 32 bits",
    FieldDescriptor.CPPTYPE_INT64: "a whole number of 64 bits",
    FieldDescriptor.CPPTYPE_UINT32: "a whole number of 32 bits, at least 0",
    FieldDescriptor.CPPTYPE_UINT64: "a whole number of 64 bits, at least 0",
}


def parse_fields(texts: Sequence[str], *, field: str) -> dict[str, list[str]]:
    """Return the values of ``NAME=VALUE`` by name, in their order.

    :param field: the argument, for errors.
    :raises InvalidArgument: for a text without ``=``.
    """
    values: dict[str, list[str]] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise InvalidArgument(field=field, value=text, expected="NAME=VALUE")
        values.setdefault(name.strip().replace("-", "_"), []).append(value)
    return values


def parse_configs(texts: Sequence[str]) -> dict[str, dict[str, str]]:
    """Return the hyperparameters of ``ID:name=value,name=value`` by id; hidden sizes are written `64x64`.

    :raises InvalidArgument: for a text of another form, or an id that is given twice.
    """
    configs: dict[str, dict[str, str]] = {}
    for text in texts:
        identifier, colon, rest = text.partition(":")
        identifier = identifier.strip()
        if not colon:
            expected = "ID:name=value,…, for example fast:learning_rate=1e-3,epochs=4"
            raise InvalidArgument(field="configs", value=text, expected=expected)
        if identifier in configs:
            raise _repetition("configs", identifier)
        values = parse_fields([part for part in rest.split(",") if part.strip()], field=f"configs.{identifier}")
        if several := next((name for name, each in values.items() if len(each) > 1), ""):
            raise _repetition(f"configs.{identifier}.{several}", values[several][1])
        configs[identifier] = {name: each[0] for name, each in values.items()}
    return configs


def set_fields(message: Message, values: Mapping[str, Any], *, field: str, remedy: str = "") -> None:
    """Set fields of a message; a field of a nested message is named ``outer.inner``, and lists replace what was there.

    The value ``@FILE`` of a field whose name ends in ``_source`` is the text of the file.

    :param field: the argument, for errors.
    :param remedy: of the error of an unknown field.
    :raises InvalidArgument: for an unknown field, a value of another type, several values of a field that is no list.
    """
    for name, value in values.items():
        owner, descriptor = _find(message, name.replace("-", "_"), field, remedy)
        path = f"{field}.{name}"
        elements = list(value) if isinstance(value, list | tuple) else [value]
        if name.endswith(_SOURCE):
            elements = [_read(element, path) for element in elements]
        if descriptor.is_repeated:
            set_value(owner, descriptor, elements, field=path)
            continue
        if len(elements) > 1:
            raise _repetition(path, elements[1])
        for element in elements:
            set_value(owner, descriptor, element, field=path)


def _repetition(field: str, value: Any) -> InvalidArgument:
    return InvalidArgument(field=field, problem="given more than once", value=value, expected="one value")


def _read(value: Any, path: str) -> Any:
    if isinstance(value, str) and value.startswith("@"):
        return read_source(Path(value[1:]), field=path)
    return value


def _find(message: Message, path: str, field: str, remedy: str) -> tuple[Message, Any]:
    """Return the message that has a field, and the field."""
    outer, _, inner = path.partition(".")
    descriptor = message.DESCRIPTOR.fields_by_name.get(outer)
    if descriptor is None:
        expected = f"one of {_names(message.DESCRIPTOR)}"
        raise InvalidArgument(field=f"{field}.{path}", problem="unknown field", expected=expected, remedy=remedy)
    if descriptor.message_type is None:
        if inner:
            raise InvalidArgument(field=field, problem="not a message", value=path, expected=outer)
        return message, descriptor
    if descriptor.is_repeated:
        problem = "lists of messages are not supported"
        raise InvalidArgument(field=field, problem=problem, value=path, expected="another field")
    if not inner:
        raise InvalidArgument(
            field=field, value=path, expected=f"one of {_names(descriptor.message_type, f'{outer}.')}"
        )
    return _find(getattr(message, outer), inner, f"{field}.{outer}", remedy)


def _names(descriptor: Any, prefix: str = "") -> str:
    return ", ".join(f"{prefix}{name}" for name in descriptor.fields_by_name) or "(none)"


def set_value(message: Message, descriptor: Any, value: Any, *, field: str) -> None:
    """Set a field that is no message.

    :param value: of the field's type, or its text.
    :raises InvalidArgument: for a value of another type.
    """
    try:
        if not descriptor.is_repeated:
            setattr(message, descriptor.name, _convert(descriptor, value))
            return
        message.ClearField(descriptor.name)
        elements = [part for element in value for part in _parts(descriptor, element)]
        getattr(message, descriptor.name).extend(_convert(descriptor, element) for element in elements)
    except (ValueError, KeyError, TypeError, OverflowError) as error:  # protobuf refuses numbers out of range
        single = value[0] if isinstance(value, list) and len(value) == 1 else value
        raise InvalidArgument(field=field, value=single, expected=_expected_value(descriptor)) from error


def _parts(descriptor: Any, element: Any) -> list[Any]:
    """Return the numbers of `64x64`."""
    if isinstance(element, str) and descriptor.cpp_type in _WHOLE_NUMBERS:
        return list(element.lower().split("x"))
    return [element]


def _convert(descriptor: Any, value: Any) -> Any:
    if isinstance(value, str) and descriptor.cpp_type != FieldDescriptor.CPPTYPE_STRING:
        value = value.strip()
    if descriptor.enum_type is not None:
        return _enum_numbers(descriptor)[str(value).lower()]
    if descriptor.cpp_type == FieldDescriptor.CPPTYPE_BOOL:
        return value if isinstance(value, bool) else _TRUTH[str(value).lower()]
    if isinstance(value, bool) and (descriptor.cpp_type in _REALS or descriptor.cpp_type in _WHOLE_NUMBERS):
        raise ValueError(value)
    if descriptor.cpp_type in _REALS:
        number = float(value)
        if not math.isfinite(number):
            raise ValueError(value)
        return number
    if descriptor.cpp_type in _WHOLE_NUMBERS:
        return int(value) if isinstance(value, str) else operator.index(value)
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return text.encode() if descriptor.type == FieldDescriptor.TYPE_BYTES else text


def _expected_value(descriptor: Any) -> str:
    if descriptor.enum_type is not None:
        return f"one of {', '.join(_enum_numbers(descriptor))}"
    if descriptor.cpp_type == FieldDescriptor.CPPTYPE_BOOL:
        return "true or false"
    if descriptor.cpp_type in _REALS:
        return "a number"
    if descriptor.is_repeated and descriptor.cpp_type in _WHOLE_NUMBERS:
        return "whole numbers, such as 64x64"
    return _WHOLE_NUMBERS.get(descriptor.cpp_type, "text")


def _enum_numbers(descriptor: Any) -> dict[str, int]:
    """Return the numbers of an enum by the lower-case names without their prefix, except 'unspecified'."""
    values = {value.name: value.number for value in descriptor.enum_type.values}
    prefix, unspecified, _ = next(iter(values)).partition("UNSPECIFIED")
    numbers = {name.removeprefix(prefix if unspecified else "").lower(): number for name, number in values.items()}
    return {name: number for name, number in numbers.items() if name != "unspecified"}
