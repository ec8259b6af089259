"""Generate `dressage.api.arguments` from the options `(argument)` in the protos; `generate_api` calls it.

The module is plain data, so that neither the command line nor `import dressage` reads descriptors when it starts.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.descriptor import Descriptor, FieldDescriptor, OneofDescriptor

PACKAGE = "dressage.v1"
HEADER = '''"""Arguments of sessions: options of the command line, keywords of Python, and their fields of the API.

Generated from `(argument)` in protos/ by `make proto`; do not edit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypedDict

from dressage.argument import Argument, Criteria, Source

'''
TYPES = {
    "text": "str",
    "integer": "int",
    "count": "int",
    "number": "float",
    "switch": "bool",
    "minutes": "float",
    "source": "Source",
    "criteria": "Criteria",
    "fields": "Mapping[str, Any]",
    "configs": "Mapping[str, Mapping[str, Any]]",
    "roles": "str | Sequence[str]",
}
METAVARS = {"integer": "N", "count": "N", "number": "X", "minutes": "MINUTES", "source": "FILE", "criteria": "FILE"}
METAVARS |= {"fields": "NAME=VALUE", "configs": "ID:NAME=VALUE,…"}


@dataclass
class Row:
    """An argument while its fields are collected."""

    name: str
    paths: list[str] = field(default_factory=list)
    values: dict[str, Any] = field(default_factory=dict)
    order: tuple[int, int] = (0, 0)


class Schema:
    """The compiled protos, with their options."""

    def __init__(self, files: descriptor_pb2.FileDescriptorSet) -> None:
        self._pool = descriptor_pool.DescriptorPool()
        for file in files.file:
            self._pool.Add(file)

    def message(self, name: str) -> Descriptor:
        """Return a message of the API."""
        return self._pool.FindMessageTypeByName(f"{PACKAGE}.{name}")

    def option(self, owner: FieldDescriptor | OneofDescriptor, kind: str, name: str) -> Any:
        """Return an option of a field or a oneof; None if it is not set."""
        options = message_factory.GetMessageClass(self._pool.FindMessageTypeByName(f"google.protobuf.{kind}"))
        message = options.FromString(owner.GetOptions().SerializeToString())
        extension: Any = self._pool.FindExtensionByName(name)
        return message.Extensions[extension] if message.HasExtension(extension) else None

    def arguments(self, root: str) -> list[Row]:
        """Return the arguments of a request, in the order of the help."""
        rows: dict[str, Row] = {}
        for path, owner, argument in self._annotations(self.message(root), ""):
            row = rows.setdefault(argument.name, Row(argument.name))
            if argument.help:
                row.paths.insert(0, path)
                row.order = (argument.group, len(rows))
                row.values = self._values(owner, argument)
            else:
                row.paths.append(path)
        roles = {argument.name for _, _, argument in self._annotations(self.message("RoleModel"), "")}
        for name in roles & rows.keys():
            rows[name].values |= {"kind": "roles", "metavar": f"[ROLE=]{rows[name].values['metavar']}"}
        return sorted(rows.values(), key=lambda row: row.order)

    def _annotations(
        self, message: Descriptor, prefix: str
    ) -> Iterator[tuple[str, FieldDescriptor | OneofDescriptor, Any]]:
        for oneof in message.oneofs:
            if argument := self.option(oneof, "OneofOptions", f"{PACKAGE}.choice"):
                yield f"{prefix}{oneof.name}", oneof, argument
        for each in message.fields:
            if argument := self.option(each, "FieldOptions", f"{PACKAGE}.argument"):
                yield f"{prefix}{each.name}", each, argument
            inner = each.message_type
            if inner is not None and inner.file.package == PACKAGE and inner.GetOptions().map_entry:
                inner = inner.fields_by_name["value"].message_type
            if inner is not None and inner.file.package == PACKAGE:
                yield from self._annotations(inner, f"{prefix}{each.name}.")

    def _values(self, owner: FieldDescriptor | OneofDescriptor, argument: Any) -> dict[str, Any]:
        choices: tuple[str, ...] = ()
        kind, prefix = "text", ""
        low, high = None, None
        if isinstance(owner, FieldDescriptor):
            kind, choices = self._kind(owner)
            if owner.enum_type is not None:
                prefix = owner.enum_type.values[0].name.removesuffix("UNSPECIFIED")
            low, high = self._range(owner)
        low = argument.min or low
        if kind == "integer" or kind == "count":
            low, high = (None if bound is None else int(bound) for bound in (low, high))
        else:
            low, high = (None if bound is None else float(bound) for bound in (low, high))
        group = self._pool.FindEnumTypeByName(f"{PACKAGE}.ArgumentGroup").values_by_number[argument.group].name
        return {
            "flag": argument.flag or f"--{argument.name.replace('_', '-')}",
            "kind": kind,
            "help": argument.help,
            "unset": argument.unset,
            "group": group.removeprefix("ARGUMENT_GROUP_").lower() if argument.group else "",
            "metavar": argument.metavar or "|".join(choices) or METAVARS.get(kind, ""),
            "choices": choices,
            "prefix": prefix,
            "minimum": low,
            "maximum": high,
            "train": argument.train,
            "single": argument.single,
            "alias": argument.alias,
        }

    def _kind(self, owner: FieldDescriptor) -> tuple[str, tuple[str, ...]]:
        message = owner.message_type
        if message is not None:
            forms = {"Duration": "minutes", "Config": "configs", "IntentCriterion": "criteria"}
            return forms.get(message.name, "fields"), ()
        if owner.enum_type is not None:
            values = [value.name for value in owner.enum_type.values]
            prefix = values[0].removesuffix("UNSPECIFIED")
            return "choice", tuple(name.removeprefix(prefix).lower() for name in values[1:])
        rules = self.option(owner, "FieldOptions", "buf.validate.field")
        if owner.cpp_type == FieldDescriptor.CPPTYPE_STRING:
            words = tuple(filter(None, getattr(rules.string, "in"))) if rules is not None else ()
            return ("choice" if words else "source" if owner.name.endswith("_source") else "text"), words
        kinds: dict[int, str] = {
            FieldDescriptor.CPPTYPE_BOOL: "switch",
            FieldDescriptor.CPPTYPE_INT32: "integer",
            FieldDescriptor.CPPTYPE_INT64: "count",
            FieldDescriptor.CPPTYPE_DOUBLE: "number",
        }
        return kinds[owner.cpp_type], ()

    def _range(self, owner: FieldDescriptor) -> tuple[float | None, float | None]:
        rules = self.option(owner, "FieldOptions", "buf.validate.field")
        if rules is None or rules.WhichOneof("type") not in ("int32", "int64", "double", "duration"):
            return None, None
        limits = getattr(rules, rules.WhichOneof("type"))
        bounds = [getattr(limits, name) if limits.HasField(name) else None for name in ("gte", "lte")]
        if rules.WhichOneof("type") == "duration":
            bounds = [None if bound is None else bound.seconds / 60 for bound in bounds]
        return bounds[0], bounds[1]


def table(name: str, doc: str, rows: list[Row]) -> str:
    """Return a tuple of arguments as source."""
    lines = [f"{name}: tuple[Argument, ...] = ("]
    for row in rows:
        lines.append("    Argument(")
        for key, value in {"name": row.name, "paths": tuple(row.paths), **row.values}.items():
            if value or isinstance(value, float):
                lines.append(f"        {key}={value!r},")
        lines.append("    ),")
    return "\n".join([*lines, ")", f'"""{doc}"""', ""])


def typed_dict(name: str, doc: str, rows: list[Row], base: str = "TypedDict, total=False") -> str:
    """Return a `TypedDict` of keywords as source."""
    lines = [f"    class {name}({base}):", f'        """{doc}"""', ""]
    for row in rows:
        kind = row.values["kind"]
        choices = ", ".join(f'"{word}"' for word in row.values["choices"])
        lines.append(f"        {row.name}: {f'Literal[{choices}]' if kind == 'choice' else TYPES[kind]} | None")
        text = row.values["help"]
        if row.values["unset"]:
            text = f"{text.removesuffix('.')} [{row.values['unset']}]."
        lines += textwrap.wrap(f'"""{text}"""', 124, initial_indent="        ", subsequent_indent="        ")
    return "\n".join([*lines, ""])


def write(image: Path, target: Path) -> None:
    """Write the module.

    :param image: compiled protos with all imports.
    """
    schema = Schema(descriptor_pb2.FileDescriptorSet.FromString(image.read_bytes()))
    session, steer = schema.arguments("SessionSpec"), schema.arguments("SteerSessionRequest")
    methods = tuple(each.name for each in schema.message("SessionSpec").oneofs_by_name["method_spec"].fields)
    keywords = [row for row in session if row.name not in ("intent", "env")]
    parts = [
        HEADER,
        table("SESSION", "Arguments of a session, by fields of `SessionSpec`.", session),
        table("STEER", "Arguments of `dressage sessions steer`, by fields of `SteerSessionRequest`.", steer),
        f'METHODS = {methods!r}\n"""Fields of `SessionSpec` that are the settings of a method."""\n\n',
        "if TYPE_CHECKING:  # commands do not need them, and they take milliseconds\n",
        typed_dict("TrainSettings", "Keywords of `dressage.train`.", [row for row in keywords if row.values["train"]]),
        "",
        typed_dict(
            "RunSettings",
            "Keywords of `dressage.run`.",
            [row for row in keywords if not row.values["train"]],
            base="TrainSettings, total=False",
        ),
    ]
    target.write_text("\n".join(parts))
