"""`dressage envs …`, `dressage artifacts …`, `dressage benchmarks …`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from dressage.cli.options import BenchmarkName, CommonOptions, DataDir, Json, expand_groups

environments = typer.Typer(help="List, show and add environments.", no_args_is_help=True)
artifacts = typer.Typer(help="List and download the files of sessions.", no_args_is_help=True)
benchmarks = typer.Typer(help="Show and cancel benchmarks, which `dressage bench` starts.", no_args_is_help=True)

Prefix = Annotated[
    str, typer.Argument(metavar="PREFIX", help="A session, an artifact key, or a prefix of keys: sessions/ID/…")
]


@environments.command("list")
@expand_groups
def list_environments(common: CommonOptions) -> None:
    """List environments.

    With --address those of the server, else those of this installation.
    """
    from dressage.cli import cards

    cards.print_cards(cards.all_cards(common.server()), as_json=common.as_json)


@environments.command("show")
@expand_groups
def show_environment(
    environment: Annotated[str, typer.Argument(metavar="ID", help="Environment, such as Hopper-v5.")],
    common: CommonOptions,
) -> None:
    """Show one environment.

    Prints observations, actions, fields, termination and presets.
    """
    from dressage.cli import cards

    cards.print_card(cards.one_card(environment, common.server()), as_json=common.as_json)


@environments.command("add")
def add_environment(
    source: Annotated[
        str,
        typer.Argument(
            metavar="MODEL.xml|gymnasium:[MODULE:]ID", help="A MuJoCo model, or a Gymnasium id, of a module."
        ),
    ],
    name: Annotated[str, typer.Option(metavar="NAME", help="Name of a model's environment [that of the file].")] = "",
    time_step: Annotated[
        float | None, typer.Option(metavar="SECONDS", help="Time between the actions of a model [about 0.02].")
    ] = None,
    episode_steps: Annotated[
        int | None, typer.Option(metavar="N", min=1, max=1_000_000, help="Steps of a model's episode [1000].")
    ] = None,
    as_json: Json = False,
    data_dir: DataDir = None,
) -> None:
    """Add a custom environment.

    A model file becomes mjcf:NAME, a registered Gymnasium id gymnasium:ID.
    """
    from dressage.cli import cards

    card = cards.add(source, name=name, time_step=time_step, episode_steps=episode_steps)
    cards.print_card(card, as_json=as_json)


@environments.command("install")
def install_pack(
    name: Annotated[str, typer.Argument(metavar="PACK", help="Environment pack; `dressage envs list` names them.")],
    reinstall: Annotated[
        bool, typer.Option("--reinstall", help="Replace an installed pack that does not work.")
    ] = False,
    data_dir: DataDir = None,
) -> None:
    """Install an environment pack, whose packages disagree with those of Dressage.

    It gets a folder of its own in the data folder, or in $DRESSAGE_PACKS. Trainers need it. The packs mjlab and isaaclab
    compile their kernels too, for minutes.
    """
    from dressage.cli import packs

    packs.install(name, reinstall=reinstall)


@environments.command("sync")
def sync_tasks(
    name: Annotated[str, typer.Argument(metavar="PACK", help="An installed pack with a registry of tasks: isaaclab.")],
    write: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the registry of the tasks found.")] = None,
    as_json: Json = False,
    data_dir: DataDir = None,
) -> None:
    """Compare the tasks of an installed pack with the registry.

    Prints tasks that are new, gone or changed, and what tasks need.
    """
    from dressage.cli import packs

    packs.sync(name, write=write, as_json=as_json)


def _key(prefix: str) -> str:
    """Return the prefix of keys that is meant; a session's id stands for all of its artifacts."""
    return prefix if prefix.startswith("sessions/") else f"sessions/{prefix}"


@artifacts.command("list")
@expand_groups
def list_artifacts(prefix: Prefix, common: CommonOptions) -> None:
    """List the artifacts of a session or with a prefix."""
    from dressage.cli import output
    from dressage.local.connection import Connection, execute

    async def work(connection: Connection) -> list[Any]:
        return [artifact async for artifact in connection.client.list_artifacts(_key(prefix))]

    entries = execute(common.server(), work)
    if common.as_json:
        output.print_json({"artifacts": [output.message_dict(artifact) for artifact in entries]})
    else:
        rows = [(artifact.key, f"{artifact.size:,}", artifact.content_type) for artifact in entries]
        output.print_table(("key", "bytes", "type"), rows, empty=f"no artifacts at {_key(prefix)}", whole=("key",))


@artifacts.command("get")
@expand_groups
def get_artifacts(
    prefix: Prefix,
    common: CommonOptions,
    out: Annotated[Path, typer.Option("--out", "-o", metavar="DIR", help="Folder to download into.")] = Path(),
) -> None:
    """Download an artifact, or all with a prefix."""
    from dressage.cli import output
    from dressage.local.connection import Connection, execute

    async def work(connection: Connection) -> list[Path]:
        with output.writing("--out", out):
            return await connection.client.download_artifacts(_key(prefix), out)

    files = execute(common.server(), work)
    if common.as_json:
        output.print_json({"files": [str(path) for path in files]})
    else:
        print("\n".join(str(path) for path in files))


@benchmarks.command("list")
@expand_groups
def list_benchmarks(common: CommonOptions) -> None:
    """List benchmarks, newest first."""
    from dressage.cli import benchmarks

    benchmarks.list_all(common.server(), as_json=common.as_json)


@benchmarks.command("show")
@expand_groups
def show_benchmark(benchmark: BenchmarkName, common: CommonOptions) -> None:
    """Show the table of one benchmark."""
    from dressage.cli import benchmarks

    benchmarks.show(benchmark, common.server(), cancel=False, as_json=common.as_json)


@benchmarks.command("cancel")
@expand_groups
def cancel_benchmark(benchmark: BenchmarkName, common: CommonOptions) -> None:
    """Cancel a benchmark and its sessions."""
    from dressage.cli import benchmarks

    benchmarks.show(benchmark, common.server(), cancel=True, as_json=common.as_json)
