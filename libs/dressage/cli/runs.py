"""`dressage runs …`: the trainers of a session, their assignments and their logs."""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dressage.cli.options import CommonOptions, SessionName, expand_groups, parse_count

if TYPE_CHECKING:
    from dressage.local.connection import Connection

app = typer.Typer(help="List and inspect the trainers of a session.", no_args_is_help=True)

Run = Annotated[
    str, typer.Argument(metavar="RUN", help="sessions/S/runs/R, S/R, or a session, which means its newest run.")
]

_FULL = re.compile(r"sessions/[^/]+/runs/[^/]+\Z")
_FOLLOW_SECONDS = 1.0
_OVERLAP = 512
"""Characters at the end of a reading of a log that identify the place in the next one."""
_SHORT = re.compile(r"(?!sessions/)([^/]+)/([^/]+)\Z")


@app.command("list")
@expand_groups
def list_(session: SessionName, common: CommonOptions) -> None:
    """List the runs of a session, oldest first."""
    from dressage.cli import output
    from dressage.local.connection import execute

    async def work(connection: Connection) -> list[Any]:
        return await _runs(connection, session)

    runs = execute(common.server(), work)
    if common.as_json:
        output.print_json({"runs": [output.message_dict(run) for run in runs]})
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
        for run in runs
    ]
    output.print_table(columns, rows, empty=f"{session} has no runs yet")


@app.command()
@expand_groups
def assignments(session: SessionName, common: CommonOptions) -> None:
    """List the assignments of a session, oldest first."""
    from dressage.cli import output
    from dressage.local.connection import execute

    async def work(connection: Connection) -> list[Any]:
        return [entry async for entry in connection.client.list_assignments(session)]

    entries = execute(common.server(), work)
    if common.as_json:
        output.print_json({"assignments": [output.message_dict(entry) for entry in entries]})
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
        for entry in entries
    ]
    output.print_table(columns, rows, empty=f"{session} has no assignments yet")


@app.command()
@expand_groups
def show(run: Run, common: CommonOptions) -> None:
    """Show one run.

    Prints its state, its current or last assignment, the members, and conditions with remedies.
    """
    from dressage.cli import output
    from dressage.local.connection import execute

    async def work(connection: Connection) -> tuple[Any, Any]:
        record = await connection.client.get_run(await _run_name(connection, run))
        if record.assignment:
            return record, await connection.client.get_assignment(record.assignment)
        parent = "/".join(record.name.split("/")[:2])
        done = [entry async for entry in connection.client.list_assignments(parent) if entry.run == record.name]
        return record, done[-1] if done else None

    message, assignment = execute(common.server(), work)
    if common.as_json:
        output.print_json(output.message_dict(message))
        return
    print(f"{message.name}  {_state(message)}, attempt {message.attempt}, pool {message.pool}")
    _print_conditions(message)
    if assignment is None:
        return
    print(f"{assignment.name}  {assignment.kind}, {_assignment_state(assignment)}")
    _print_conditions(assignment)
    if assignment.members:
        _print_members(assignment)


def _print_conditions(resource: Any) -> None:
    """Print the failure and the conditions of a run or an assignment."""
    if resource.HasField("failure"):
        print(f"failed: {resource.failure.reason}: {resource.failure.message}")
        if resource.failure.remedy:
            print(f"  {resource.failure.remedy}")
    for condition in resource.conditions:
        print(f"{condition.time.ToDatetime():%H:%M:%S} {condition.type}: {condition.message}")


def _print_members(assignment: Any) -> None:
    from dressage.cli import output
    from dressage.sdk.texts import return_text

    rows = [
        (
            member.name.rpartition("/")[2],
            f"{member.env_steps:,} of {member.target_env_steps:,}" if member.target_env_steps else "",
            return_text(member.metrics["episode_return"], decimals=1) if "episode_return" in member.metrics else "",
            member.failure.message,
        )
        for member in assignment.members
    ]
    output.print_table(("member", "env steps", "episode return", "failure"), rows, empty="no members")


@app.command()
@expand_groups
def logs(
    run: Run,
    common: CommonOptions,
    tail: Annotated[
        int, typer.Option(parser=parse_count, metavar="BYTES", help="Print at most the last BYTES, such as 64k.")
    ] = 65_536,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Print new lines until the run ends.")] = False,
) -> None:
    """Print the end of the log of a run."""
    from dressage.cli import output
    from dressage.local.connection import execute

    if follow and common.as_json:
        raise typer.BadParameter("--json prints one document; use it without --follow", param_hint="--follow")
    if follow:

        async def until_end(connection: Connection) -> None:
            await _follow(await _run_name(connection, run), connection, tail=tail)

        execute(common.server(), until_end)
        return

    async def work(connection: Connection) -> Any:
        return await connection.client.read_run_log(await _run_name(connection, run), tail_bytes=tail)

    log = execute(common.server(), work)
    if common.as_json:
        output.print_json({"text": log.text, "truncated": log.truncated})
        return
    if log.truncated:
        print("…")
    print(log.text, end="" if log.text.endswith("\n") else "\n")


async def _follow(name: str, connection: Connection, *, tail: int) -> None:
    """Print the end of a log, and then what is added to it, until the run ends.

    :param name: full name of the run.
    :param tail: bytes of a reading.
    """
    from dressage.api.v1 import session_pb2 as pb

    text, final = "", (pb.RUN_STATE_SUCCEEDED, pb.RUN_STATE_FAILED, pb.RUN_STATE_CANCELLED)
    import asyncio  # not at the top: `dressage --help` imports this module

    while True:
        ended = (await connection.client.get_run(name)).state in final
        log = (await connection.client.read_run_log(name, tail_bytes=tail)).text
        sys.stdout.write(new_text(text, log))
        sys.stdout.flush()
        text = log or text
        if ended:
            return
        await asyncio.sleep(_FOLLOW_SECONDS)


def new_text(before: str, after: str) -> str:
    """Return what a reading of a log has that the reading before did not have.

    The API reads the end of a log. Two readings overlap, so that what is new is what follows the overlap; if they do not, lines
    between them were longer than a reading, and a line marks the place.
    """
    if not before or after == before:
        return "" if after == before else after
    end = before[-_OVERLAP:]
    place = after.rfind(end)
    return after[place + len(end) :] if place >= 0 else f"\n… (lines are missing here)\n{after}"


async def _runs(connection: Connection, session: str) -> list[Any]:
    return [run async for run in connection.client.list_runs(session)]


async def _run_name(connection: Connection, text: str) -> str:
    """Return the full name of a run.

    :raises NotFound: if the text names a session without runs.
    """
    from dressage import errors

    if _FULL.match(text):
        return text
    if parts := _SHORT.match(text):
        return f"sessions/{parts[1]}/runs/{parts[2]}"
    runs = await _runs(connection, text)
    if not runs:
        raise errors.NotFound(f"session {text!r} has no runs yet", reason="RUN_NOT_FOUND")
    return str(runs[-1].name)


def _short(name: str) -> str:
    _, session, _, run = name.split("/")
    return f"{session}/{run}"


def _assignment(name: str) -> str:
    """Return `ITERATION/ASSIGNMENT`; empty for none."""
    parts = name.split("/")
    return f"{parts[3]}/{parts[5]}" if len(parts) == 6 else ""


def _state(run: Any) -> str:
    from dressage.api.v1 import session_pb2 as pb

    return pb.RunState.Name(run.state).removeprefix("RUN_STATE_").lower()


def _assignment_state(assignment: Any) -> str:
    from dressage.api.v1 import session_pb2 as pb

    return pb.AssignmentState.Name(assignment.state).removeprefix("ASSIGNMENT_STATE_").lower()
