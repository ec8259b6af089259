"""Options of the commands: those of the client are declared here, those of sessions in the protos (`dressage.api.arguments`).

Commands that share several options take them as a group. `expand_groups` shows them to typer one by one and gives the command
the filled group. This module imports nothing heavy, because `dressage --help` imports it.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from decimal import Decimal, DecimalException
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self, get_type_hints

import typer

from dressage.api.arguments import SESSION, STEER
from dressage.argument import Argument
from dressage.places import FOLDERS
from dressage.places import data_dir as folder_in_use

if TYPE_CHECKING:
    from dressage.local.connection import ServerOptions

ENVIRONMENTS = "DRESSAGE_ENVIRONMENTS"
"""Variable with the folder of custom environments; processes that a command starts inherit it."""
_MAXIMUM = 10**11
_SUFFIXES = {"k": 1_000, "m": 1_000_000, "g": 1_000_000_000}


def parse_count(text: str | int, minimum: float = 1, maximum: float | None = None) -> int:
    """Return a count; `600k` and `1.5M` are accepted.

    :raises typer.BadParameter: for anything else.
    """
    lowered = str(text).strip().lower().replace("_", "").replace(",", "")
    factor = _SUFFIXES.get(lowered[-1:], 1)
    try:
        # Not a float: 4.1 times a million is no whole number there.
        number = Decimal(lowered[:-1] if factor > 1 else lowered) * factor
    except DecimalException:
        number = Decimal(-1)
    if not number.is_finite() or not minimum <= number <= (maximum or _MAXIMUM) or number != int(number):
        range_text = f"from {minimum:.0f} to {maximum or _MAXIMUM:,.0f}"
        raise typer.BadParameter(f"{str(text)!r} is not a whole number {range_text} (for example 500000, 600k or 1.5M)")
    return int(number)


def _with_environments(folder: Path | None) -> Path | None:
    """Use the custom environments and packs of the data folder, unless the variables name other folders."""
    for variable, name in FOLDERS.items():
        if not os.environ.get(variable):
            os.environ[variable] = str(folder_in_use(folder) / name)
    return folder


# Names: sessions, benchmarks, environments, models.
Intent = Annotated[str, typer.Argument(metavar="INTENT", help="The behaviour, in words.")]
SessionName = Annotated[
    str, typer.Argument(metavar="SESSION", help="Id of a session, sessions/ID, or @latest for the newest.")
]
BenchmarkName = Annotated[str, typer.Argument(metavar="BENCHMARK", help="Id of a benchmark, or benchmarks/ID.")]
Bundle = Annotated[str, typer.Argument(metavar="BUNDLE", help="Folder of a policy bundle, or a session.")]
RewardFile = Annotated[Path, typer.Argument(metavar="REWARD.py", help="File with a reward function.")]
Environment = Annotated[
    str, typer.Option("--env", metavar="ID", help="Environment, such as Hopper-v5; see `dressage envs list`.")
]
Model = Annotated[
    str,
    typer.Option("--model", metavar="NAME", help="Language model as litellm names it, or template/v1 for none."),
]
ApiBase = Annotated[
    str | None, typer.Option("--api-base", metavar="URL", help="API endpoint of the language model's provider.")
]

# Following a session.
Yes = Annotated[
    bool, typer.Option("--yes", "-y", help="Do not ask before a session that costs money or may take an hour.")
]
Detach = Annotated[bool, typer.Option("--detach", help="Return when the session has started; needs a running server.")]

Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress, only the result.")]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Show a line for each event, also in a terminal.")]
FailBelow = Annotated[
    float | None,
    typer.Option("--fail-below", metavar="X", help="Exit with status 3 if the final score is below X, or missing."),
]

# Output and server.
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document instead of text.")]
DataDir = Annotated[
    Path | None,
    typer.Option(
        "--data-dir",
        metavar="DIR",
        envvar="DRESSAGE_HOME",
        help="Data folder of this machine.",
        callback=_with_environments,
    ),
]
Address = Annotated[
    str | None,
    typer.Option(
        "--address", metavar="HOST:PORT", envvar="DRESSAGE_ADDRESS", help="Server to use [one on this machine]."
    ),
]
Token = Annotated[
    str | None,
    typer.Option("--token", metavar="TOKEN", envvar="DRESSAGE_TOKEN", help="Bearer token of the server."),
]
CaFile = Annotated[
    Path | None,
    typer.Option(
        "--ca-file",
        metavar="FILE",
        envvar="DRESSAGE_CA_FILE",
        help="CA certificates (PEM) that verify the server; TLS [the system's, for https://].",
    ),
]
Insecure = Annotated[
    bool,
    typer.Option(
        "--insecure", envvar="DRESSAGE_INSECURE", help="Send the token to another machine without encryption."
    ),
]
TlsCert = Annotated[
    Path | None,
    typer.Option("--tls-cert", metavar="FILE", envvar="DRESSAGE_TLS_CERT", help="Certificate chain (PEM): serve TLS."),
]
TlsKey = Annotated[
    Path | None,
    typer.Option("--tls-key", metavar="FILE", envvar="DRESSAGE_TLS_KEY", help="Private key (PEM) of the certificate."),
]


@dataclass(frozen=True)
class CommonOptions:
    """Output and server, as most commands take them."""

    as_json: Json = False
    data_dir: DataDir = None
    address: Address = None
    token: Token = None
    ca_file: CaFile = None
    insecure: Insecure = False

    def server(self, *, api_base: str | list[str] | None = None, recordings: Path | None = None) -> ServerOptions:
        """Return the options of the connection; imports gRPC."""
        from dressage.client import Trust
        from dressage.local.connection import ServerOptions
        from dressage.sdk.arguments import by_role

        bases = by_role("api_base", api_base or ())
        general = bases.pop("", None)
        return ServerOptions(
            self.address,
            self.token,
            self.data_dir,
            general,
            recordings,
            tuple(bases.values()),
            trust=Trust(self.ca_file, insecure=self.insecure),
        )


@dataclass(frozen=True)
class ViewOptions:
    """What a command that follows a session shows, and how its exit status depends on the score."""

    quiet: Quiet = False
    verbose: Verbose = False
    fail_below: FailBelow = None

    @property
    def detail(self) -> Literal["quiet", "normal", "verbose"]:
        """How much is shown."""
        return "quiet" if self.quiet else "verbose" if self.verbose else "normal"


class SessionOptions(dict[str, Any]):
    """Values of the arguments of a session, by name; those that are not given are left out."""

    arguments: ClassVar[tuple[Argument, ...]] = tuple(each for each in SESSION if each.flag.startswith("--"))

    @classmethod
    def parse(cls, values: Mapping[str, Any]) -> Self:
        """Parse what typer leaves as text.

        :raises InvalidArgument: naming the option.
        """
        options = cls({name: value for name, value in values.items() if value is not None and value != []})
        texts = [each for each in cls.arguments if each.kind in ("fields", "configs") and each.name in options]
        if texts:
            from dressage.sdk.argument_names import option_names
            from dressage.sdk.fields import parse_configs, parse_fields

            with option_names():
                for each in texts:
                    value = options[each.name]
                    parsed = parse_configs(value) if each.kind == "configs" else parse_fields(value, field=each.name)
                    options[each.name] = parsed
        return options


class RunOptions(SessionOptions):
    """Options of `dressage run`."""


class TrainOptions(SessionOptions):
    """Options of one training."""

    arguments = tuple(each for each in SessionOptions.arguments if each.train)


class CaseOptions(SessionOptions):
    """Options of each session of a benchmark."""

    arguments = tuple(each for each in SessionOptions.arguments if not each.single)


class BudgetOptions(SessionOptions):
    """Limits of a session."""

    arguments = tuple(each for each in SessionOptions.arguments if each.paths[0].startswith("budget."))


class SteerOptions(SessionOptions):
    """Directions for the next iteration of a session."""

    arguments = tuple(each for each in STEER if each.flag.startswith("--"))


_KINDS: dict[str, Any] = {
    "text": str,
    "choice": str,
    "integer": int,
    "count": int,
    "number": float,
    "minutes": float,
    "switch": bool,
    "source": Path,
    "criteria": Path,
}
"""What typer parses; other kinds are lists of texts."""


def _parameter(argument: Argument) -> inspect.Parameter:
    """Return the parameter of a command for an argument."""
    flags = [argument.flag, argument.alias] if argument.alias else [argument.flag]
    more: dict[str, Any] = {"metavar": argument.metavar}
    if argument.kind == "switch":
        flags, more = [f"{argument.flag}/--no-{argument.flag.removeprefix('--')}"], {}
    elif argument.kind == "count":
        more["parser"] = lambda text: parse_count(text, argument.minimum or 0, argument.maximum)
    elif argument.kind in ("integer", "number", "minutes"):
        more |= {"min": argument.minimum, "max": argument.maximum}
    option = typer.Option(*flags, help=argument.description, show_default=False, **more)
    annotation: Any = Annotated[_KINDS.get(argument.kind, list[str]) | None, option]
    return inspect.Parameter(argument.name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)


LATEST = "@latest"


def _newest(value: Any, common: CommonOptions) -> Any:
    """Return the id of the newest session in place of `@latest`, also before a slash; other values as they are."""
    if isinstance(value, list):
        return [_newest(entry, common) for entry in value]
    if not isinstance(value, str) or not (value == LATEST or value.startswith(f"{LATEST}/")):
        return value
    from dressage.local.connection import Connection, execute

    async def newest(connection: Connection) -> str:
        async for session in connection.client.list_sessions(page_size=1):
            return str(session.name).rpartition("/")[2]
        raise typer.BadParameter("there is no session yet", param_hint=LATEST)

    return execute(common.server(), newest) + value.removeprefix(LATEST)


def expand_groups(command: Callable[..., None]) -> Callable[..., None]:
    """Return the command with each parameter that is a group of options replaced by its options, for typer.

    A group is a dataclass or a kind of `SessionOptions`. `CommonOptions` come last in the help.
    """
    hints = get_type_hints(command, include_extras=True)
    groups = {name: kind for name, kind in hints.items() if is_dataclass(kind) or _is_session(kind)}
    members: dict[str, list[inspect.Parameter]] = {name: _members(group) for name, group in groups.items()}
    parameters: list[inspect.Parameter] = []
    for parameter in inspect.signature(command).parameters.values():
        single = parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY, annotation=hints[parameter.name])
        parameters += members.get(parameter.name, [single])

    last = {field.name for field in fields(CommonOptions)}
    parameters.sort(key=lambda parameter: parameter.name in last)

    def flat(**values: Any) -> None:
        common = CommonOptions(**{name: values[name] for name in last if name in values})
        values = {name: _newest(value, common) for name, value in values.items()}
        filled = {}
        for name, group in groups.items():
            chosen = {member.name: values.pop(member.name) for member in members[name]}
            filled[name] = group.parse(chosen) if _is_session(group) else group(**chosen)
        command(**values, **filled)

    flat.__name__, flat.__doc__, flat.__module__ = command.__name__, command.__doc__, command.__module__
    flat.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    flat.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return flat


def _is_session(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, SessionOptions)


def _members(group: Any) -> list[inspect.Parameter]:
    if _is_session(group):
        return [_parameter(argument) for argument in group.arguments]
    annotations = get_type_hints(group, include_extras=True)
    return [
        inspect.Parameter(
            field.name, inspect.Parameter.KEYWORD_ONLY, default=field.default, annotation=annotations[field.name]
        )
        for field in fields(group)
    ]
