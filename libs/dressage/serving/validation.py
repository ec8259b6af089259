"""Validation of requests by the rules in the protos (protovalidate)."""

from __future__ import annotations

from typing import Any

import protovalidate

from dressage.errors import InvalidArgument


class MessageValidator:
    """Validates messages and raises `InvalidArgument` that names the first bad field and lists all of them."""

    def __init__(self) -> None:
        self._validator = protovalidate.Validator()

    def __call__(self, message: Any) -> None:
        """Raises `InvalidArgument` if ``message`` breaks a rule of its proto."""
        try:
            self._validator.validate(message)
        except protovalidate.ValidationError as error:
            problems = [(_path(violation.proto), violation.proto.message) for violation in error.violations]
            shown = "; ".join(f"{path}: {text} (got {_shown(message, path)})" for path, text in problems[:5])
            first = problems[0][0] if problems else ""
            raise InvalidArgument(shown, field=first, reason="INVALID_FIELD") from None


def _path(violation: Any) -> str:
    """A violation's field as a dotted path."""
    parts = []
    for element in violation.field.elements:
        name = element.field_name
        index = getattr(element, "index", None)
        parts.append(f"{name}[{index}]" if isinstance(index, int) and _is_list(element) else name)
    return ".".join(parts)


def _is_list(element: Any) -> bool:
    """Whether a path element points into a list."""
    try:
        return bool(element.HasField("index"))
    except (AttributeError, ValueError):
        return False


def _shown(message: Any, path: str) -> str:
    """The value at ``path``, cut to what fits in a line."""
    value: Any = message
    for part in path.split("."):
        if "[" in part or not hasattr(value, part):
            return "a value inside a list"
        value = getattr(value, part)
    if isinstance(value, str) and len(value) > 60:
        return f"{len(value)} characters: {value[:40]!r}…"
    return repr(value) if isinstance(value, (str, int, float, bool)) else "a message"
