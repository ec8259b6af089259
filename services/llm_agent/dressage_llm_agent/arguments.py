"""Validates the arguments of a model's tool call against the tool's schema; errors are messages for the model."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from dressage_llm_agent.provider.base import ToolSpec

_SHOWN = 60


def read_arguments(text: str, spec: ToolSpec) -> dict[str, Any]:
    """Return a tool call's arguments.

    :raises ValueError: with a message for the model, if they are not a JSON object of the tool's parameters.
    """
    try:
        value = json.loads(text or "{}")
    except (ValueError, RecursionError) as error:
        raise ValueError(f"the arguments of {spec.name} are not valid JSON: {error}") from None
    if not isinstance(value, dict):
        raise ValueError(f"the arguments of {spec.name} must be a JSON object, not {type(value).__name__}")
    properties: Mapping[str, Mapping[str, Any]] = spec.parameters["properties"]
    if unknown := sorted(set(value) - set(properties)):
        names = ", ".join(properties) or "no arguments"
        raise ValueError(f"{spec.name} has no argument {unknown[0][:_SHOWN]!r}; it takes {names}")
    for name in spec.parameters["required"]:
        if name not in value:
            raise ValueError(f"{spec.name} needs the argument {name}: {properties[name].get('description', '')}")
    return {name: _read(f"{spec.name}: {name}", given, properties[name]) for name, given in value.items()}


def _read(path: str, value: Any, schema: Mapping[str, Any]) -> Any:
    kind = schema["type"]
    if kind in ("integer", "number"):
        return _number(path, value, schema, whole=kind == "integer")
    if kind == "string":
        return _string(path, value, schema)
    return value


def _number(path: str, value: Any, schema: Mapping[str, Any], *, whole: bool) -> float | int:
    """A number; strings of digits are accepted, and floats for whole numbers."""
    seen = repr(value)[:_SHOWN]
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            value = None
    known = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if not known or (whole and value != value // 1):
        raise ValueError(f"{path} is {seen}; it must be a {'whole ' if whole else ''}number")
    if value < schema.get("minimum", -math.inf):
        raise ValueError(f"{path} is {seen}; it must be at least {schema['minimum']}")
    if value > schema.get("maximum", math.inf):
        raise ValueError(f"{path} is {seen}; it must be at most {schema['maximum']}")
    return int(value) if whole else float(value)


def _string(path: str, value: Any, schema: Mapping[str, Any]) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{path} must be a string, not {type(value).__name__}")
    choices = schema.get("enum")
    if choices and value not in choices:
        raise ValueError(f"{path} is {value[:_SHOWN]!r}; it must be one of {', '.join(choices)}")
    longest = schema.get("maxLength", 100_000)
    if not schema.get("minLength", 0) <= len(value) <= longest:
        raise ValueError(f"{path} has {len(value)} characters; it must have {schema.get('minLength', 0)} to {longest}")
    return value
