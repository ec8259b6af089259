"""Random messages of any type, from its descriptor and the validation rules of its fields; the same for the same seed.

A field is left out, valid, at or beyond a bound of its rules or of its type, hostile, or oversized. Valid strings come from a
pool of names that exist, so that requests get past validation.
"""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from typing import Any

from dressage.api.buf.validate import validate_pb2
from google.protobuf import any_pb2, struct_pb2
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

HOSTILE = (
    "",
    "\x00",
    "-",
    " ",
    ".",
    "..",
    "../../etc/passwd",
    "sessions/../../x",
    "sessions/-",
    "sessions/" + "a" * 400,
    "a/" * 200,
    "%s%n{}{0}$(id)`id`",
    "'; DROP TABLE sessions; --",
    "\u202e\u0000\ud7ff\U0010ffff",
    "１２３",
    "²",
    "1e400",
    "NaN",
    "{" * 500,
    "[" * 2000,
    "\x1b]0;title\x07",
    "\n\r\t",
    "a" * 70_000,
    "é" * 5_000,
    "def reward(context):\n    return 0.0\n",
    "def reward(" + "(" * 300,
    "9" * 5_000,
    "-9223372036854775809",
)
_INTEGERS = {
    FieldDescriptor.CPPTYPE_INT32: (-(2**31), 2**31 - 1),
    FieldDescriptor.CPPTYPE_INT64: (-(2**63), 2**63 - 1),
    FieldDescriptor.CPPTYPE_UINT32: (0, 2**32 - 1),
    FieldDescriptor.CPPTYPE_UINT64: (0, 2**64 - 1),
}
_FLOATS = (0.0, -0.0, 1.0, -1.0, 0.5, 1e-320, 1e308, -1e308, float("inf"), float("-inf"), float("nan"))
_DEPTH = 6


class Messages:
    """Makes random messages.

    :param pool: strings that exist: names of resources, keys, models, sources.
    """

    def __init__(self, seed: object, pool: Sequence[str]) -> None:
        self._random = random.Random(str(seed))
        self._pool = tuple(pool)

    def message(self, descriptor: Descriptor) -> Message:
        """A message of a type; how much of it is valid differs from one to the next."""
        validity = self._random.choice((0.5, 0.9, 0.97, 1.0))
        presence = self._random.choice((0.2, 0.6, 0.9))
        return self._message(descriptor, validity, presence, 0)

    def changed(self, base: Message) -> Message:
        """A copy of a valid message with up to four fields, at any depth, of other values."""
        message = type(base)()
        message.CopyFrom(base)
        for _ in range(self._random.randint(0, 4)):
            self._change(message, self._random.choice((0.1, 0.6, 1.0)))
        return message

    def _change(self, message: Any, validity: float) -> None:
        descriptor = message.DESCRIPTOR
        inner = [field for field, _ in message.ListFields() if field.message_type and not _is_map(field)]
        if inner and self._random.random() < 0.7:
            field = self._random.choice(inner)
            value = getattr(message, field.name)
            return self._change(self._random.choice(value) if field.is_repeated else value, validity)
        if not descriptor.fields:
            return None
        field = self._random.choice(descriptor.fields)
        message.ClearField(field.name)
        if isinstance(message, any_pb2.Any | struct_pb2.Struct) or self._random.random() < 0.15:
            return None
        return self._fill(message, field, validity, 0.5, _DEPTH - 2)

    def garbage(self, message: Message) -> bytes:
        """Bytes that are no such message, or one of another type: cut, changed, random, repeated, nested without end."""
        data = bytearray(message.SerializeToString())
        kind = self._random.randrange(6)
        if kind == 0:
            return bytes(data[: self._random.randrange(len(data) + 1)])
        if kind == 1 and data:
            for _ in range(self._random.randint(1, 8)):
                data[self._random.randrange(len(data))] = self._random.randrange(256)
            return bytes(data)
        if kind == 2:
            return self._random.randbytes(self._random.choice((1, 7, 300)))
        if kind == 3:
            return bytes(data) * 20
        if kind == 4:
            nested = b""
            for _ in range(300):
                length, nested_length = len(nested), bytearray()
                while length > 127:
                    nested_length.append(length & 127 | 128)
                    length >>= 7
                nested = b"\x0a" + bytes([*nested_length, length]) + nested
            return nested
        return self._wrong_types(message.DESCRIPTOR)

    def _wrong_types(self, descriptor: Descriptor) -> bytes:
        """Each field's number with another wire type than its own."""
        data = bytearray()
        for field in descriptor.fields:
            if field.number < 16:
                data += bytes([field.number << 3 | self._random.choice((0, 1, 2, 5)), 1, 120])
        return bytes(data)

    def _message(self, descriptor: Descriptor, validity: float, presence: float, depth: int) -> Message:
        message = GetMessageClass(descriptor)()
        if isinstance(message, any_pb2.Any):
            message.type_url = self._random.choice(("", "x", "type.googleapis.com/dressage.v1.Session", "///"))
            message.value = self._random.randbytes(self._random.choice((0, 3, 60)))
            return message
        if isinstance(message, struct_pb2.Struct):
            message.update({"a": 1.5, "b": [None, True, "x" * self._random.choice((1, 5000))], "": {"": {}}})
            return message
        if descriptor.full_name.startswith("google.protobuf.Value"):
            return message
        for field in descriptor.fields:
            within = field.message_type is not None and depth >= _DEPTH
            if within or self._random.random() > self._presence(field, presence):
                continue
            self._fill(message, field, validity, presence, depth)
        return message

    def _presence(self, field: FieldDescriptor, presence: float) -> float:
        if field.containing_oneof is not None and not field.has_presence:
            return presence
        return 0.97 if _rules(field).required or field.name in ("name", "parent", "spec", "intent") else presence

    def _fill(self, message: Any, field: FieldDescriptor, validity: float, presence: float, depth: int) -> None:
        if _is_map(field):
            entries = getattr(message, field.name)
            key, value = field.message_type.fields_by_name["key"], field.message_type.fields_by_name["value"]
            for _ in range(self._random.choice((1, 2, 40))):
                name = self._scalar(key, validity)
                if value.message_type is None:
                    entries[name] = self._scalar(value, validity)
                else:
                    entries[name].CopyFrom(self._message(value.message_type, validity, presence, depth + 1))
            return
        if field.is_repeated:
            many = 1 if self._random.random() < validity else self._random.choice((0, 2, 30, 200))
            for _ in range(many if depth < 2 else min(many, 3)):
                if field.message_type is None:
                    getattr(message, field.name).append(self._scalar(field, validity))
                else:
                    entry = self._message(field.message_type, validity, presence, depth + 1)
                    getattr(message, field.name).append(entry)
            return
        if field.message_type is not None:
            getattr(message, field.name).CopyFrom(self._message(field.message_type, validity, presence, depth + 1))
            return
        setattr(message, field.name, self._scalar(field, validity))

    def _scalar(self, field: FieldDescriptor, validity: float) -> Any:
        valid = self._random.random() < validity
        kind, rules = field.cpp_type, _rules(field)
        if kind in _INTEGERS:
            return self._integer(_number_rules(field, rules), _INTEGERS[kind], valid)
        if kind in (FieldDescriptor.CPPTYPE_DOUBLE, FieldDescriptor.CPPTYPE_FLOAT):
            return self._float(_number_rules(field, rules), valid, single=kind == FieldDescriptor.CPPTYPE_FLOAT)
        if kind == FieldDescriptor.CPPTYPE_BOOL:
            return self._random.random() < 0.5
        if kind == FieldDescriptor.CPPTYPE_ENUM:
            known = [value.number for value in field.enum_type.values]
            return self._random.choice(known) if valid else self._random.choice((-1, 99, 2**31 - 1))
        if field.type == FieldDescriptor.TYPE_BYTES:
            return self._random.randbytes(self._random.choice((0, 4, 300 if valid else 70_000)))
        return self._string(field, rules.string, valid)

    def _integer(self, rules: Any, span: tuple[int, int], valid: bool) -> int:
        low, high = _bounds(rules, *span)
        if valid:
            return self._random.choice((int(low), int(min(high, low + 3)), int(min(high, max(low, 7)))))
        beyond = (low - 1, high + 1, *span, 0, -1, 2**31, 2**53 + 1)
        return int(self._random.choice([value for value in beyond if span[0] <= value <= span[1]]))

    def _float(self, rules: Any, valid: bool, *, single: bool) -> float:
        low, high = _bounds(rules, -1e6, 1e6)
        if valid:
            return float(self._random.choice((low, high, (low + high) / 2, min(high, low + 1e-3))))
        value = self._random.choice((*_FLOATS, low - 1, high * 2))
        return 3e38 if single and abs(value) > 3e38 and value not in (float("inf"), float("-inf")) else float(value)

    def _string(self, field: FieldDescriptor, rules: Any, valid: bool) -> str:
        if valid:
            fitting = [text for text in self._pool if _fits(text, rules)]
            named = [text for text in fitting if field.name in ("intent", "model", "environment") or "/" in text]
            return self._random.choice(named or fitting or [""])
        if self._random.random() < 0.1:
            limit = rules.max_len or rules.max_bytes or 1000
            return "x" * (limit + self._random.choice((0, 1)))
        return self._random.choice((*HOSTILE, *self._pool))


def _rules(field: FieldDescriptor) -> Any:
    rules = field.GetOptions().Extensions[validate_pb2.field]
    return rules.repeated.items if field.is_repeated and rules.HasField("repeated") else rules


def _number_rules(field: FieldDescriptor, rules: Any) -> Any:
    kind = rules.WhichOneof("type")
    return getattr(rules, kind) if kind in ("int32", "int64", "uint32", "uint64", "double", "float") else None


def _bounds(rules: Any, low: float, high: float) -> tuple[float, float]:
    if rules is None:
        return low, high
    step = 1 if rules.DESCRIPTOR.name.startswith(("Int", "UInt")) else 1e-9
    lower, upper = rules.WhichOneof("greater_than"), rules.WhichOneof("less_than")
    low = low if lower is None else getattr(rules, lower) + (step if lower == "gt" else 0)
    high = high if upper is None else getattr(rules, upper) - (step if upper == "lt" else 0)
    return low, high


def _fits(text: str, rules: Any) -> bool:
    if rules.pattern and re.search(rules.pattern, text) is None:
        return False
    if rules.prefix and not text.startswith(rules.prefix):
        return False
    if rules.HasField("max_len") and len(text) > rules.max_len:
        return False
    return len(text) >= rules.min_len


def _is_map(field: FieldDescriptor) -> bool:
    return field.message_type is not None and field.message_type.GetOptions().map_entry
