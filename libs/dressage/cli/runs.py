"""`dressage runs …`: leases of a session's trainers, the assignments that they work on, and what they wrote."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dressage.cli.options import Address, DataDir, Json, Token, parse_count

if TYPE_CHECKING:
    from dressage.local.connection import Connection

app = typer.Typer(help="Look at a session's trainers and their work.", no_args_is_help=True)

Session = Annotated[str, typer.Argument(metavar="SESSION", help="Id of a session, or sessions/ID.")]
Run = Annotated[str, typer.Argument(metavar="RUN", help="sessions/S/runs/R, S/R, or a session: its newest run.")]

_FULL = re.compile(r"sessions/[^/]+/runs/[^/]+\Z")
_SHORT = re.compile(r"(?!sessions/)([^/]+)/([^/]+)\Z")


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
    columns = ("run", "state", "pool", "attempt", "assignment", "condition")
    rows = [
        (
            _short(run.name),
            _state(run),
            run.pool,
            run.attempt,
            _assignment(run.assignment),
            run.failure.message or (run.conditions[-1].message if run.conditions else ""),
        )
        for run in found
    ]
    output.print_table(columns, rows, empty=f"{session} has no runs yet")


@app.command()
def assignments(
    session: Session, as_json: Json = False, data_dir: DataDir = None, address: Address = None, token: Token = None
) -> None:
    """Assignments of a session, oldest first: what its trainers did and do."""

    async def work(connection: Connection) -> list[Any]:
        return [entry async for entry in connection.client.list_assignments(session)]

    found = _execute(work, address, token, data_dir)
    from dressage.cli import output

    if as_json:
        output.print_json({"assignments": [output.message_dict(entry) for entry in found]})
        return
    columns = ("assignment", "kind", "state", "run", "failures", "env steps", "steps/s", "condition")
    rows = [
        (
            _assignment(entry.name),
            entry.kind,
            _assignment_state(entry),
            entry.run.rpartition("/")[2],
            entry.failures,
            f"{sum(member.env_steps for member in entry.members) or entry.search.env_steps:,}",
            f"{entry.steps_per_second:,.0f}" if entry.steps_per_second else "",
            entry.failure.message or (entry.conditions[-1].message if entry.conditions else ""),
        )
        for entry in found
    ]
    output.print_table(columns, rows, empty=f"{session} has no assignments yet")


@app.command()
def show(
    run: Run, as_json: Json = False, data_dir: DataDir = None, address: Address = None, token: Token = None
) -> None:
    """One run: its state, the members of its assignment or its last one, and conditions with what to do about them."""

    async def work(connection: Connection) -> tuple[Any, Any]:
        found = await connection.client.get_run(await _named(connection, run))
        if found.assignment:
            return found, await connection.client.get_assignment(found.assignment)
        parent = "/".join(found.name.split("/")[:2])
        done = [entry async for entry in connection.client.list_assignments(parent) if entry.run == found.name]
        return found, done[-1] if done else None

    found, assignment = _execute(work, address, token, data_dir)
    from dressage.cli import output

    if as_json:
        output.print_json(output.message_dict(found))
        return
    print(f"{found.name}  {_state(found)}, attempt {found.attempt}, pool {found.pool}")
    _print_notes(found)
    if assignment is None:
        return
    print(f"{assignment.name}  {assignment.kind}, {_assignment_state(assignment)}")
    _print_notes(assignment)
    if assignment.members:
        _print_members(assignment)


def _print_notes(found: Any) -> None:
    """The failure and the conditions of a run or an assignment."""
    if found.HasField("failure"):
        print(f"failed: {found.failure.reason}: {found.failure.message}")
        if found.failure.remedy:
            print(f"  {found.failure.remedy}")
    for condition in found.conditions:
        print(f"{condition.time.ToDatetime():%H:%M:%S} {condition.type}: {condition.message}")


def _print_members(assignment: Any) -> None:
    from dressage.cli import output
    from dressage.sdk.progress import return_text

    rows = [
        (
            member.name.rpartition("/")[2],
            f"{member.env_steps:,} of {member.target_env_steps:,}",
            return_text(member.metrics["episode_return"], decimals=1) if "episode_return" in member.metrics else "",
            member.failure.message,
        )
        for member in assignment.members
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
    from dressage.local.connection import ServerOptions as Where
    from dressage.local.connection import execute

    return execute(Where(address, token, data_dir), work)


async def _runs(connection: Connection, session: str) -> list[Any]:
    return [run async for run in connection.client.list_runs(session)]


async def _named(connection: Connection, text: str) -> str:
    """The full name of the run that is meant.

    :raises NotFound: if a session is meant that has no runs.
    """
    from dressage import errors

    if _FULL.match(text):
        return text
    if parts := _SHORT.match(text):
        return f"sessions/{parts[1]}/runs/{parts[2]}"
    found = await _runs(connection, text)
    if not found:
        raise errors.NotFound(f"session {text!r} has no runs yet", reason="RUN_NOT_FOUND")
    return str(found[-1].name)


def _short(name: str) -> str:
    _, session, _, run = name.split("/")
    return f"{session}/{run}"


def _assignment(name: str) -> str:
    """`ITERATION/ASSIGNMENT`; empty for none."""
    parts = name.split("/")
    return f"{parts[3]}/{parts[5]}" if len(parts) == 6 else ""


def _state(run: Any) -> str:
    from dressage.api.v1 import session_pb2 as pb

    return pb.RunState.Name(run.state).removeprefix("RUN_STATE_").lower()


def _assignment_state(assignment: Any) -> str:
    from dressage.api.v1 import session_pb2 as pb

    return pb.AssignmentState.Name(assignment.state).removeprefix("ASSIGNMENT_STATE_").lower()
