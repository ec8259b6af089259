"""A session as a file: the spec of the API in YAML or JSON, with the field names of the protos.

`dressage run --file` reads it, `--dump` writes it, and `--schema` prints its JSON Schema for editors. A recording's
`session.json` has the same form.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.json_format import MessageToDict, ParseDict, ParseError

from dressage import errors
from dressage.api.v1 import session_pb2 as pb
from dressage.sdk import methods
from dressage.sdk.files import YAML, read_source, yaml_module

_WHOLE = (FieldDescriptor.CPPTYPE_INT32, FieldDescriptor.CPPTYPE_UINT32)
_WIDE = (FieldDescriptor.CPPTYPE_INT64, FieldDescriptor.CPPTYPE_UINT64)
_NUMBER = (FieldDescriptor.CPPTYPE_DOUBLE, FieldDescriptor.CPPTYPE_FLOAT)


def read_spec(path: Path, *, field: str) -> pb.SessionSpec:
    """Return the spec of a file.

    :param field: the option that names the file, for errors.
    :raises InvalidArgument: if the file cannot be read, or is not a spec.
    """
    text = read_source(path, field=field)
    if '"@type"' in text or "'@type'" in text:
        methods.import_plugins()  # parsing needs the message types of plug-ins
    try:
        data = _load(path, text)
        if not isinstance(data, dict):
            raise TypeError("not an object")
        if isinstance(name := data.get("environment"), str) and name and not name.startswith("environments/"):
            data["environment"] = f"environments/{name}"
        return ParseDict(data, pb.SessionSpec())
    except (ParseError, TypeError, ValueError) as error:
        raise errors.InvalidArgument(
            field=field, problem=f"cannot be parsed: {error}", value=str(path), expected="the spec of a session"
        ) from error


def _load(path: Path, text: str) -> Any:
    if path.suffix.lower() not in YAML:
        return json.loads(text)
    yaml = yaml_module(path)
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ValueError(" ".join(str(error).split())) from error


def dump(spec: pb.SessionSpec) -> str:
    """Return the spec as YAML, or as JSON, which YAML includes, where PyYAML is not installed."""
    plain = MessageToDict(spec, preserving_proto_field_name=True)
    try:
        yaml = yaml_module(Path("session.yaml"))
    except errors.InvalidArgument:
        return json.dumps(plain, indent=2, ensure_ascii=False) + "\n"
    text: str = yaml.safe_dump(plain, sort_keys=False, allow_unicode=True, width=100)
    return text


def schema() -> dict[str, Any]:
    """Return the JSON Schema of a file, from the descriptors of the API."""
    definitions: dict[str, Any] = {}
    root = _message(pb.SessionSpec.DESCRIPTOR, definitions)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "SessionSpec",
        **root,
        "$defs": definitions,
    }


_WELL_KNOWN: dict[str, dict[str, Any]] = {
    "google.protobuf.Duration": {"type": "string", "pattern": r"^-?\d+(\.\d+)?s$"},
    "google.protobuf.Timestamp": {"type": "string", "format": "date-time"},
    "google.protobuf.Any": {"type": "object", "required": ["@type"]},
}


def _message(descriptor: Descriptor, definitions: dict[str, Any]) -> dict[str, Any]:
    properties = {}
    for field in descriptor.fields:
        value = _value(field, definitions)
        properties[field.name] = {"type": "array", "items": value} if _is_list(field) else value
    return {"type": "object", "properties": properties, "additionalProperties": False}


def _is_list(field: FieldDescriptor) -> bool:
    return bool(field.is_repeated) and not (
        field.message_type is not None and field.message_type.GetOptions().map_entry
    )


def _value(field: FieldDescriptor, definitions: dict[str, Any]) -> dict[str, Any]:
    if field.message_type is not None:
        return _reference(field.message_type, definitions)
    if field.enum_type is not None:
        return {"enum": [value.name for value in field.enum_type.values]}
    if field.cpp_type in _WIDE:
        return {"type": ["integer", "string"]}  # JSON of protobuf writes them as strings
    if field.cpp_type in _WHOLE:
        return {"type": "integer"}
    if field.cpp_type in _NUMBER:
        return {"type": "number"}
    return {"type": "boolean" if field.cpp_type == FieldDescriptor.CPPTYPE_BOOL else "string"}


def _reference(descriptor: Descriptor, definitions: dict[str, Any]) -> dict[str, Any]:
    if descriptor.full_name in _WELL_KNOWN:
        return _WELL_KNOWN[descriptor.full_name]
    if descriptor.GetOptions().map_entry:
        return {"type": "object", "additionalProperties": _value(descriptor.fields_by_name["value"], definitions)}
    if descriptor.name not in definitions:
        definitions[descriptor.name] = {}  # a message may contain itself
        definitions[descriptor.name] = _message(descriptor, definitions)
    return {"$ref": f"#/$defs/{descriptor.name}"}
