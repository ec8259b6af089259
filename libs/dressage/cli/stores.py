"""`dressage envs …`, `dressage artifacts …`, `dressage benchmarks …`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from dressage.cli.options import Address, DataDir, Json, Token

environments = typer.Typer(help="Environments that policies can be trained in.", no_args_is_help=True)
artifacts = typer.Typer(help="What sessions have written.", no_args_is_help=True)
benchmarks = typer.Typer(help="Many intents, one table.", no_args_is_help=True)

Prefix = Annotated[str, typer.Argument(metavar="PREFIX", help="A session, or a key or prefix: sessions/ID/…")]
Benchmark = Annotated[str, typer.Argument(metavar="BENCHMARK", help="Id of a benchmark, or benchmarks/ID.")]


@environments.command("list")
def list_environments(
    as_json: Json = False, data_dir: DataDir = None, address: Address = None, token: Token = None
) -> None:
    """Environments, by name; a server's if one is named, else those of this installation."""
    from dressage.cli import cards

    cards.print_cards(cards.all_cards(address, token), as_json=as_json)


@environments.command("show")
def show_environment(
    environment: Annotated[str, typer.Argument(metavar="ID", help="Id of an environment.")],
    as_json: Json = False,
    data_dir: DataDir = None,
    address: Address = None,
    token: Token = None,
) -> None:
    """One environment: what can be seen, moved and asked for in it."""
    from dressage.cli import cards

    cards.print_card(cards.one_card(environment, address, token), as_json=as_json)


@environments.command("add")
def add_environment(
    source: Annotated[str, typer.Argument(metavar="MODEL.xml|gymnasium:ID", help="A MuJoCo model, or a Gymnasium id.")],
    name: Annotated[str, typer.Option(metavar="NAME", help="Name of the model's environment [the file's].")] = "",
    time_step: Annotated[
        float | None, typer.Option(metavar="SECONDS", help="Time between a model's actions [about 0.02].")
    ] = None,
    episode_steps: Annotated[
        int | None, typer.Option(metavar="N", min=1, max=1_000_000, help="Steps of a model's episode [1000].")
    ] = None,
    as_json: Json = False,
    data_dir: DataDir = None,
) -> None:
    """Add an environment of your own: a model file as mjcf:NAME, a registered Gymnasium id as gymnasium:ID."""
    from dressage.cli import cards

    found = cards.add(source, name=name, time_step=time_step, episode_steps=episode_steps)
    cards.print_card(found, as_json=as_json)


def _key(prefix: str) -> str:
    """A session's id stands for all below it."""
    return prefix if prefix.startswith("sessions/") else f"sessions/{prefix}"


@artifacts.command("list")
def list_artifacts(
    prefix: Prefix, as_json: Json = False, data_dir: DataDir = None, address: Address = None, token: Token = None
) -> None:
    """Artifacts below a prefix."""
    from dressage.cli import output
    from dressage.local.connection import Connection, execute
    from dressage.local.connection import ServerOptions as Where

    async def work(connection: Connection) -> list[Any]:
        return [artifact async for artifact in connection.client.list_artifacts(_key(prefix))]

    found = execute(Where(address, token, data_dir), work)
    if as_json:
        output.print_json({"artifacts": [output.message_dict(artifact) for artifact in found]})
    else:
        rows = [(artifact.key, f"{artifact.size:,}", artifact.content_type) for artifact in found]
        output.print_table(("key", "bytes", "type"), rows, empty=f"nothing at or below {_key(prefix)}")


@artifacts.command("get")
def get_artifacts(
    prefix: Prefix,
    out: Annotated[Path, typer.Option("--out", "-o", metavar="DIR", help="Folder to download into.")] = Path(),
    as_json: Json = False,
    data_dir: DataDir = None,
    address: Address = None,
    token: Token = None,
) -> None:
    """Download an artifact, or all below a prefix."""
    from dressage.cli import output
    from dressage.local.connection import Connection, execute
    from dressage.local.connection import ServerOptions as Where

    async def work(connection: Connection) -> list[Path]:
        with output.writing("--out", out):
            return await connection.client.download_artifacts(_key(prefix), out)

    written = execute(Where(address, token, data_dir), work)
    if as_json:
        output.print_json({"files": [str(path) for path in written]})
    else:
        print("\n".join(str(path) for path in written))


@benchmarks.command("run")
def run_benchmark(
    cases: Annotated[Path, typer.Argument(metavar="CASES.json", help="A list of {intent, environment, …}.")],
    model: Annotated[str, typer.Option(help="Language model; template/v1: none.")] = "",
    iterations: Annotated[int | None, typer.Option(min=1, max=1000, help="Iterations at most for each case.")] = None,
    as_json: Json = False,
    data_dir: DataDir = None,
    address: Address = None,
    token: Token = None,
) -> None:
    """Run a session for each case of a file, and show what became of them."""
    from dressage.cli import tables
    from dressage.local.connection import ServerOptions as Where

    tables.run(cases, Where(address, token, data_dir), model=model, iterations=iterations or 0, as_json=as_json)


@benchmarks.command("list")
def list_benchmarks(
    as_json: Json = False, data_dir: DataDir = None, address: Address = None, token: Token = None
) -> None:
    """Benchmarks, newest first."""
    from dressage.cli import tables
    from dressage.local.connection import ServerOptions as Where

    tables.list_all(Where(address, token, data_dir), as_json=as_json)


@benchmarks.command("show")
def show_benchmark(
    benchmark: Benchmark, as_json: Json = False, data_dir: DataDir = None, address: Address = None, token: Token = None
) -> None:
    """One benchmark's table."""
    from dressage.cli import tables
    from dressage.local.connection import ServerOptions as Where

    tables.show(benchmark, Where(address, token, data_dir), cancel=False, as_json=as_json)


@benchmarks.command("cancel")
def cancel_benchmark(
    benchmark: Benchmark, as_json: Json = False, data_dir: DataDir = None, address: Address = None, token: Token = None
) -> None:
    """End a benchmark and its sessions."""
    from dressage.cli import tables
    from dressage.local.connection import ServerOptions as Where

    tables.show(benchmark, Where(address, token, data_dir), cancel=True, as_json=as_json)
