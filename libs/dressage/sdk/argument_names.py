"""Names in errors: fields of the API as arguments of Python, and arguments as options of the command line or keys of a file.

A server names a field by its path (`spec.budget.dollars`), and code that Python and the command line share names an argument as
Python does (`budget_dollars`, `configs.fast.epochs`). Only the fields of an `InvalidArgument` are renamed, never its text.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager

from dressage.api.arguments import METHODS, SESSION
from dressage.argument import Argument
from dressage.errors import InvalidArgument

_SPECS = ("spec", "template")
_INNER = ("hyperparameters",)
"""Parts of paths that arguments leave out."""
CLIENT = {
    name: f"--{name.replace('_', '-')}"
    for name in ("address", "api_base", "ca_file", "console", "data_dir", "metrics", "replay")
}
"""Arguments of the client itself, and their options."""


@contextmanager
def python_names() -> Iterator[None]:
    """Name arguments in errors: ``spec.budget.dollars`` becomes ``budget_dollars``."""
    try:
        yield
    except InvalidArgument as error:
        error.rename(argument_path)
        raise


@contextmanager
def option_names(
    arguments: Sequence[Argument] = SESSION,
    *,
    others: Mapping[str, str] | None = None,
    only: Collection[str] | None = None,
    file: str = "",
) -> Iterator[None]:
    """Name options in errors: ``spec.budget.dollars`` becomes ``--budget-dollars``.

    :param arguments: of the request.
    :param others: options or positional arguments of this command that differ, by argument.
    :param only: arguments that have a value on the command line; others are fields of the file. By default all.
    :param file: name of the file.
    """
    flags = {**{argument.name: argument.flag for argument in arguments}, **(others or {})}
    paths = {path: argument.name for argument in arguments for path in argument.paths}

    def name(field: str) -> str:
        path = argument_path(field)
        if path == field:  # of another request than a spec
            path = paths.get(field, field)
        first = path.partition(".")[0].partition("[")[0]
        if only is not None and first not in only and path != field:
            return f"{file} {field.partition('.')[2]}"
        inner = path.removeprefix(first).removeprefix(".")
        return f"{flags[first]} {inner}".rstrip() if first in flags else field

    try:
        yield
    except InvalidArgument as error:
        error.rename(name)
        raise


def argument_path(field: str) -> str:
    """Return the argument of a field of a spec, and what in its value is meant; other names stay.

    A config of several is known by the refused value.
    """
    spec, dot, path = field.partition(".")
    if spec == "options":  # of an environment
        return f"env_options.{path}"
    if spec not in _SPECS or not dot:
        return field
    parts = [part.partition("[")[0] for part in path.split(".")]
    for length in range(len(parts), 0, -1):
        if name := _ARGUMENTS.get(".".join(parts[:length])):
            return ".".join([name, *(part for part in parts[length:] if part not in _INNER)])
    if parts[0] not in METHODS:
        return path
    return ".".join(["settings", *parts[1:]]) if len(parts) > 1 else "method"


_ARGUMENTS = {path: argument.name for argument in SESSION for path in argument.paths if path not in METHODS}
