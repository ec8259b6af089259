"""Write `docs/api.md` from the comments and rules in `protos/`.

Run it with ``make docs``. ``--check`` only checks whether the page is current. ``--image`` names compiled protos to read.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import generate_api
from dressage.api.buf.validate import validate_pb2
from google.protobuf import descriptor_pb2, text_format
from google.protobuf.descriptor_pb2 import FieldDescriptorProto

PAGE = generate_api.ROOT / "docs" / "api.md"
HEADER = """# API reference

Generated from `protos/` by `make docs`; do not edit. `dressage.v1` is the public API, `dressage.internal.v1` is what
the services say to each other. Requests are validated by the rules in the last column
([protovalidate](https://protovalidate.com)); a broken rule is answered with INVALID_ARGUMENT and a
`google.rpc.BadRequest` that names the field.
"""
# Numbers of the fields of descriptors, of which paths into source info are made (descriptor.proto).
_MESSAGES, _ENUMS, _SERVICES, _FIELDS, _NESTED, _NESTED_ENUMS = 4, 5, 6, 2, 3, 4
Comments = dict[tuple[int, ...], str]


def comments_of(file: descriptor_pb2.FileDescriptorProto) -> Comments:
    """Leading comments by path, on one line each."""
    return {tuple(at.path): " ".join(at.leading_comments.split()) for at in file.source_code_info.location}


def short(full_name: str) -> str:
    """A message's name without our packages."""
    return full_name.removeprefix(".").removeprefix("dressage.internal.v1.").removeprefix("dressage.v1.")


def type_of(field: FieldDescriptorProto, maps: dict[str, str]) -> str:
    """A field's type as it is written in the proto, packages of ours left out."""
    if field.type_name in maps:
        return maps[field.type_name]
    name = short(field.type_name) or FieldDescriptorProto.Type.Name(field.type).removeprefix("TYPE_").lower()
    if field.label == FieldDescriptorProto.LABEL_REPEATED:
        return f"repeated {name}"
    return f"optional {name}" if field.proto3_optional else name


def map_types(message: descriptor_pb2.DescriptorProto, full_name: str) -> dict[str, str]:
    """``map<key, value>`` by the full name of the entry message that the compiler makes for it."""
    entries = [nested for nested in message.nested_type if nested.options.map_entry]
    types = {entry.name: [type_of(field, {}) for field in entry.field] for entry in entries}
    return {f"{full_name}.{name}": f"map<{key}, {value}>" for name, (key, value) in types.items()}


def rules_of(field: FieldDescriptorProto) -> str:
    """Validation rules on one line, as in the proto."""
    if not field.options.HasExtension(validate_pb2.field):
        return ""
    rules = field.options.Extensions[validate_pb2.field]
    text = text_format.MessageToString(rules, as_one_line=True, as_utf8=True)
    return f"`{text.replace('|', chr(92) + '|')}`"


def row(*cells: str) -> str:
    """One row of a table."""
    return "| " + " | ".join(cells) + " |"


def message_lines(
    message: descriptor_pb2.DescriptorProto, path: tuple[int, ...], prefix: str, comments: Comments
) -> Iterator[str]:
    """A message, its fields, and what is nested in it."""
    full_name = f"{prefix}.{message.name}"
    yield from (f"#### {short(full_name)}", "", comments.get(path, ""), "")
    maps = map_types(message, full_name)
    if message.field:
        yield from (row("field", "type", "meaning", "rules"), row("---", "---", "---", "---"))
    for index, field in enumerate(message.field):
        meaning = comments.get((*path, _FIELDS, index), "")
        if field.HasField("oneof_index") and not field.proto3_optional:
            meaning = f"(one of `{message.oneof_decl[field.oneof_index].name}`) {meaning}"
        yield row(f"`{field.name}`", f"`{type_of(field, maps)}`", meaning.replace("|", "\\|"), rules_of(field))
    yield ""
    for index, enum in enumerate(message.enum_type):
        yield from enum_lines(enum, (*path, _NESTED_ENUMS, index), comments)
    for index, nested in enumerate(message.nested_type):
        if not nested.options.map_entry:
            yield from message_lines(nested, (*path, _NESTED, index), full_name, comments)


def enum_lines(enum: descriptor_pb2.EnumDescriptorProto, path: tuple[int, ...], comments: Comments) -> Iterator[str]:
    """An enum and its values."""
    yield from (f"#### {enum.name}", "", comments.get(path, ""), "", row("value", "meaning"), row("---", "---"))
    for index, value in enumerate(enum.value):
        yield row(f"`{value.name}` = {value.number}", comments.get((*path, _FIELDS, index), ""))
    yield ""


def file_lines(file: descriptor_pb2.FileDescriptorProto) -> Iterator[str]:
    """One proto file: its services first, then messages and enums."""
    comments = comments_of(file)
    yield from (f"## {file.name}", "")
    for number, service in enumerate(file.service):
        path: tuple[int, ...] = (_SERVICES, number)
        yield from (f"### {file.package}.{service.name}", "", comments.get(path, ""), "")
        yield from (row("RPC", "request", "response", "meaning"), row("---", "---", "---", "---"))
        for index, method in enumerate(service.method):
            request = ("stream " if method.client_streaming else "") + method.input_type.rpartition(".")[2]
            response = ("stream " if method.server_streaming else "") + method.output_type.rpartition(".")[2]
            yield row(f"`{method.name}`", request, response, comments.get((*path, _FIELDS, index), ""))
        yield ""
    for index, message in enumerate(file.message_type):
        yield from message_lines(message, (_MESSAGES, index), f".{file.package}", comments)
    for index, enum in enumerate(file.enum_type):
        yield from enum_lines(enum, (_ENUMS, index), comments)


def page(image: bytes) -> str:
    """The whole page from a serialised FileDescriptorSet with source info."""
    files = [f for f in descriptor_pb2.FileDescriptorSet.FromString(image).file if f.package.startswith("dressage.")]
    ordered = sorted(files, key=lambda file: (file.package != "dressage.v1", not file.service, file.name))
    return HEADER + "\n" + "\n".join(line for file in ordered for line in file_lines(file))


def main(arguments: Sequence[str] | None = None) -> int:
    """Writes, or with ``--check`` compares; returns the exit status."""
    parser = argparse.ArgumentParser(description="Writes docs/api.md from protos/.")
    parser.add_argument("--check", action="store_true", help="fail if the committed page is not current")
    parser.add_argument("--image", type=Path, help="compiled protos to read instead of compiling")
    args = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as scratch:
        image = args.image or Path(scratch) / "api.binpb"
        if args.image is None:
            generate_api.compile_image(image)
        fresh = page(image.read_bytes())
    if not args.check:
        PAGE.write_text(fresh, encoding="utf-8")
    elif not PAGE.exists() or PAGE.read_text(encoding="utf-8") != fresh:
        print("docs/api.md is not current; run `make docs` and commit the result", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
