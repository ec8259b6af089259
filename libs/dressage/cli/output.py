"""Output of commands: tables, or one JSON document with --json, and one line for an error.

Results go to standard output, everything else to standard error. Only commands that print tables import rich.
"""

from __future__ import annotations

import base64
import json
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from dressage.errors import DressageError, InvalidArgument
from dressage.terminal import make_console, printable, raw_stream

if TYPE_CHECKING:
    from google.protobuf.message import Message
    from rich.console import Console

_PIPE_WIDTH = 240
_WIDEST = 10_000
_RED, _RESET = "\033[31m", "\033[0m"


def message_dict(message: Message) -> dict[str, Any]:
    """Return a protobuf message as JSON values, with the field names of the protos and 64-bit integers as numbers."""
    from google.protobuf.descriptor import FieldDescriptor
    from google.protobuf.json_format import MessageToDict

    try:
        plain: dict[str, Any] = MessageToDict(message, preserving_proto_field_name=True)
    except TypeError:  # the descriptor of a plug-in's message is not loaded yet
        plain = MessageToDict(_readable(message), preserving_proto_field_name=True)
    wide = (FieldDescriptor.CPPTYPE_INT64, FieldDescriptor.CPPTYPE_UINT64)

    # proto3's JSON writes 64-bit integers as strings, for JavaScript; programs in other languages expect numbers.
    def convert(values: dict[str, Any], descriptor: Any) -> None:
        for name, field in descriptor.fields_by_name.items():
            if name not in values:
                continue
            value = values[name]
            if field.cpp_type in wide:
                values[name] = [int(item) for item in value] if isinstance(value, list) else int(value)
            elif field.message_type is not None and not field.message_type.full_name.startswith("google."):
                if field.message_type.GetOptions().map_entry:
                    continue
                for item in value if isinstance(value, list) else [value]:
                    convert(item, field.message_type)

    convert(plain, message.DESCRIPTOR)
    return plain


def _readable(message: Message) -> Message:
    """Return a copy with readable messages of plug-ins; one of an unknown plug-in has its type and bytes instead."""
    from google.protobuf import descriptor_pool
    from google.protobuf.any_pb2 import Any as AnyMessage
    from google.protobuf.struct_pb2 import Struct

    from dressage.sdk.methods import import_plugins

    import_plugins()
    copy = type(message)()
    copy.CopyFrom(message)

    def convert(part: Message) -> None:
        for field, value in part.ListFields():
            if field.message_type is None or field.message_type.GetOptions().map_entry:
                continue
            for entry in value if field.is_repeated else [value]:
                if isinstance(entry, AnyMessage):
                    _show_unknown(entry)
                else:
                    convert(entry)

    def _show_unknown(entry: AnyMessage) -> None:
        try:
            descriptor_pool.Default().FindMessageTypeByName(entry.TypeName())
        except KeyError:
            placeholder = Struct()
            placeholder.update({"type": entry.TypeName(), "base64": base64.b64encode(entry.value).decode()})
            entry.Pack(placeholder)

    convert(copy)
    return copy


def print_json(document: Any) -> None:
    """Print one JSON document to standard output. NaN and infinities, which JSON lacks, become null."""
    print(json.dumps(_finite(document), indent=2, ensure_ascii=False), flush=True)


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if value == value and abs(value) != float("inf") else None
    if isinstance(value, dict):
        return {str(key): _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return value


def console(*, error: bool = False) -> Console:
    """Return a console on standard output or error; without a terminal it is wide, so that paths are not broken."""
    stream = sys.stderr if error else sys.stdout
    width = None if stream.isatty() or os.environ.get("COLUMNS") else _PIPE_WIDTH
    created: Console = make_console(stream, highlight=False, width=width)
    return created


def print_table(
    columns: Sequence[str],
    rows: Iterable[Sequence[object]],
    *,
    title: str = "",
    empty: str = "",
    whole: Sequence[str] = (),
) -> None:
    """Print a table to standard output; without rows, the text `empty`.

    :param whole: columns whose cells stay on one line, also where they are wider than the terminal, so that they can be copied.
    """
    from rich.measure import Measurement
    from rich.table import Table
    from rich.text import Text

    filled = [[Text(str(cell)) for cell in row] for row in rows]
    out = console()
    if not filled:
        out.print(Text(empty or "nothing to show"))
        return
    if title:  # as a line of its own: a table breaks its title at its own width
        out.print(Text(title, style="italic"))
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column, overflow="fold", no_wrap=column in whole)
    for row in filled:
        table.add_row(*row)
    if whole:  # a line that is too long is broken by the terminal, which copies it as one
        out.width = max(out.width, Measurement.get(out, out.options.update(max_width=_WIDEST), table).minimum)
    out.print(table)


def fail(error: DressageError, *, as_json: bool) -> None:
    """Print an error to standard error: one line, or a JSON document."""
    document: dict[str, Any] = {"reason": error.reason, "message": error.message}
    if isinstance(error, InvalidArgument):
        document |= {"field": error.field, "expected": error.expected}
    if error.metadata:
        document["metadata"] = error.metadata
    _fail("error", error.message, document, as_json=as_json)


@contextmanager
def writing(field: str, place: object, *, expected: str = "a path that can be written to") -> Iterator[None]:
    """Convert errors of writing to a path that the user named.

    :raises InvalidArgument: naming the field and the path, if it cannot be written.
    """
    try:
        yield
    except OSError as error:
        if isinstance(error, ConnectionError | TimeoutError):  # of a connection, or of a pipe
            raise
        problem = f"cannot be written: {error.strerror or type(error).__name__}"
        message = f"{field}: {problem} (got {str(place)!r}); expected {expected}"  # with the complete path
        raise InvalidArgument(message, field=field, expected=expected) from error


def fail_unexpected(error: BaseException, *, as_json: bool) -> None:
    """Print an unexpected exception to standard error."""
    message = f"{type(error).__name__}: {error}".strip().rstrip(":")
    text = f"{message}. This is a bug in dressage; DRESSAGE_DEBUG=1 shows the traceback."
    _fail("error", text, {"reason": "INTERNAL", "message": message}, as_json=as_json)


def fail_usage(error: Any, *, as_json: bool) -> int:
    """Print a usage error to standard error and return the exit code; without arguments, print the help."""
    if type(error).__name__ == "NoArgsIsHelpError":
        print(error.format_message())
        return 0
    message = str(error.format_message())
    context = getattr(error, "ctx", None)
    hint = f" (see: {context.command_path} --help)" if context is not None else ""
    _fail("usage", message + hint, {"reason": "USAGE", "message": message}, as_json=as_json)
    return int(error.exit_code)


def _fail(kind: str, text: str, document: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        print(json.dumps({"error": document}, ensure_ascii=False), file=sys.stderr, flush=True)
        return
    line = f"{kind}: " + "\n  ".join(text.splitlines())
    coloured = sys.stderr.isatty() and not os.environ.get("NO_COLOR")
    line = printable(line)
    print(f"{_RED}{line}{_RESET}" if coloured else line, file=raw_stream(sys.stderr), flush=True)
