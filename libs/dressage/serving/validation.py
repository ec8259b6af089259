"""Validation of requests by the rules in the protos (protovalidate)."""

from __future__ import annotations

from collections.abc import Sized
from typing import Any

import protovalidate
from google.protobuf.duration_pb2 import Duration

from dressage.errors import InvalidArgument, Violation


class MessageValidator:
    """Validates messages and raises `InvalidArgument` with the first invalid field and a message that lists them."""

    def __init__(self) -> None:
        self._validator = protovalidate.Validator()

    def __call__(self, message: Any) -> None:
        """Raise `InvalidArgument` if ``message`` breaks a rule of its proto."""
        try:
            self._validator.validate(message)
        except protovalidate.ValidationError as error:
            violations = [Violation(_path(each), _text(each)) for each in error.violations[:5]]
            raise InvalidArgument(violations=violations, reason="INVALID_FIELD") from None


def _text(violation: Any) -> str:
    got = _short(violation.field_value)
    if violation.proto.rule_id == "string.in":  # its own message lists the empty text, which means the default
        return f"invalid value (got {got}); expected one of {', '.join(filter(None, violation.rule_value))}"
    return f"{violation.proto.message} (got {got})"


def _path(violation: Any) -> str:
    """Return the field as a dotted path with indices of lists and keys of maps: `spec.reward.configs[0].id`."""
    parts = []
    for element in violation.proto.field.elements:
        subscript = element.subscript
        parts.append(element.field_name if subscript is None else f"{element.field_name}[{subscript.value!r}]")
    return ".".join(parts)


def _short(value: Any) -> str:
    """Return a value, shortened to fit in a line."""
    if isinstance(value, str) and len(value) > 60:
        return f"{len(value)} characters: {value[:40]!r}…"
    if isinstance(value, str | int | float | bool):
        return repr(value)
    if isinstance(value, Duration):
        return f"{value.seconds + value.nanos / 1e9:g} s"
    return f"{len(value)} entries" if isinstance(value, Sized) else "a message"
