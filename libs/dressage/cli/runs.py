"""`dressage runs …`: trainings of a session, what became of them, and what their trainers wrote."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dressage.cli.options import Address, DataDir, Json, Token, parse_count

if TYPE_CHECKING:
    from dressage.cli.connection import Connection

app = typer.Typer(help="Look at a session's trainings.", no_args_is_help=True)

Session = Annotated[str, typer.Argument(metavar="SESSION", help="Id of a session, or sessions/ID.")]
Run = Annotated[
    str, typer.Argument(metavar="RUN", help="sessions/S/iterations/I/runs/R, S/I/R, or a session: its newest run.")
]

_FULL = re.compile(r"sessions/[^/]+/iterations/\d+/runs/[^/]+\Z")
_SHORT = re.compile(r"([^/]+)/(\d+)/([^/]+)\Z")


@app.command("list")
def list_(
    session: Session, as_json: Json = False, data_dir: DataDir = None, address: Address = None, token: Token = None
) -> None:
    """Runs of a session, oldest first."""

    async def work(connection: Connection) -> list[Any]:
        return await _runs(connection, session)

    found = _execute(work, address, token, data_dir)
    from dressage.cli import output

    if as_json:
        output.print_json({"runs": [output.message_dict(run) for run in found]})
        return
    columns = ("run", "state", "pool", "attempt", "env steps", "steps/s", "what is to be known")
    rows = [
        (
            _short(run.name),
            _state(run),
            run.pool,
            run.attempt,
            f"{sum(member.env_steps for member in run.members):,}",
            f"{run.steps_per_second:,.0f}" if run.steps_per_second else "",
            run.failure.message or (run.conditions[-1].message if run.conditions else ""),
        )
        for run in found
    ]
    output.print_table(columns, rows, empty=f"{session} has no runs yet")


@app.command()
def show(
    run: Run, as_json: Json = False, data_dir: DataDir = None, address: Address = None, token: Token = None
) -> None:
    """One run: its state, members and conditions, with what to do about them."""

    async def work(connection: Connection) -> Any:
        return await connection.client.get_run(await _named(connection, run))

    found = _execute(work, address, token, data_dir)
    from dressage.cli import output
    from dressage.cli.progress import return_text

    if as_json:
        output.print_json(output.message_dict(found))
        return
    print(f"{found.name}  {_state(found)}, attempt {found.attempt}, pool {found.pool}")
    if found.HasField("failure"):
        print(f"failed: {found.failure.reason}: {found.failure.message}")
        if found.failure.remedy:
            print(f"  {found.failure.remedy}")
    for condition in found.conditions:
        print(f"{condition.time.ToDatetime():%H:%M:%S} {condition.type}: {condition.message}")
    rows = [
        (
            member.name.rpartition("/")[2],
            f"{member.env_steps:,} of {member.target_env_steps:,}",
            return_text(member.metrics["episode_return"], decimals=1) if "episode_return" in member.metrics else "",
            member.failure.message,
        )
        for member in found.members
    ]
    output.print_table(("member", "env steps", "episode return", "failure"), rows, empty="no members")


@app.command()
def logs(
    run: Run,
    tail: Annotated[
        int, typer.Option(parser=parse_count, metavar="BYTES", help="At most so much of its end, e.g. 64k.")
    ] = 65_536,
    as_json: Json = False,
    data_dir: DataDir = None,
    address: Address = None,
    token: Token = None,
) -> None:
    """The end of what a run's trainers wrote: the process's log, or the pod's."""

    async def work(connection: Connection) -> Any:
        return await connection.client.read_run_log(await _named(connection, run), tail_bytes=tail)

    answer = _execute(work, address, token, data_dir)
    if as_json:
        from dressage.cli import output

        output.print_json({"text": answer.text, "truncated": answer.truncated})
        return
    if answer.truncated:
        print("…")
    print(answer.text, end="" if answer.text.endswith("\n") else "\n")


def _execute(
    work: Callable[[Connection], Awaitable[Any]], address: str | None, token: str | None, data_dir: Any
) -> Any:
    from dressage.cli.connection import Where, execute

    return execute(Where(address, token, data_dir), work)


async def _runs(connection: Connection, session: str) -> list[Any]:
    from dressage.client.names import session_name

    return [run async for run in connection.client.list_runs(f"{session_name(session)}/iterations/-")]


async def _named(connection: Connection, text: str) -> str:
    """The full name of the run that is meant.

    :raises NotFound: if a session is meant that has no runs.
    """
    from dressage import errors

    if _FULL.match(text):
        return text
    if parts := _SHORT.match(text):
        return f"sessions/{parts[1]}/iterations/{parts[2]}/runs/{parts[3]}"
    found = await _runs(connection, text)
    if not found:
        raise errors.NotFound(f"session {text!r} has no runs yet", reason="RUN_NOT_FOUND")
    return str(found[-1].name)


def _short(name: str) -> str:
    _, session, _, iteration, _, run = name.split("/")
    return f"{session}/{iteration}/{run}"


def _state(run: Any) -> str:
    from dressage.api.v1 import session_pb2 as pb

    return pb.RunState.Name(run.state).removeprefix("RUN_STATE_").lower()
