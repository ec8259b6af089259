"""`dressage sessions …`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dressage.cli.options import Address, DataDir, Json, Token

if TYPE_CHECKING:
    from dressage.local.connection import Connection

app = typer.Typer(help="Look at sessions and act on them.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(metavar="SESSION", help="Id of a session, or sessions/ID.")]


def _with(
    work: Callable[[Connection], Awaitable[Any]],
    address: str | None,
    token: str | None,
    data_dir: Any,
    *,
    start: Any = "records",
) -> Any:
    from dressage.local.connection import ServerOptions as Where
    from dressage.local.connection import execute

    return execute(Where(address, token, data_dir), work, start=start)


@app.command("list")
def list_(
    all_: Annotated[bool, typer.Option("--all", help="Deleted ones too.")] = False,
    limit: Annotated[int, typer.Option(min=1, help="How many at most.")] = 50,
    as_json: Json = False,
    data_dir: DataDir = None,
    address: Address = None,
    token: Token = None,
) -> None:
    """Sessions, newest first."""
    from dressage.cli import listings

    sessions = _with(listings.sessions(show_deleted=all_, limit=limit), address, token, data_dir)
    listings.print_sessions(sessions, as_json=as_json)


@app.command()
def show(
    session: Name, as_json: Json = False, data_dir: DataDir = None, address: Address = None, token: Token = None
) -> None:
    """One session: state, scores, iterations, where its policy and video are."""
    from dressage.cli import listings

    listings.print_session(_with(listings.session(session), address, token, data_dir), as_json=as_json)


@app.command()
def watch(
    session: Name, as_json: Json = False, data_dir: DataDir = None, address: Address = None, token: Token = None
) -> None:
    """Follow a session until it ends; Ctrl-C leaves it alone."""
    from dressage.cli import listings

    # A full stack goes on with a session that a crash or a stop has interrupted.
    _with(listings.watch(session, as_json=as_json), address, token, data_dir, start="full")


@app.command()
def cancel(
    session: Name,
    reason: Annotated[str, typer.Option(help="Kept as the state's reason.")] = "",
    as_json: Json = False,
    data_dir: DataDir = None,
    address: Address = None,
    token: Token = None,
) -> None:
    """End a session; what it has so far stays."""
    _act(
        lambda client: client.cancel_session(session, reason=reason), "is cancelled", as_json, address, token, data_dir
    )


@app.command()
def resume(
    session: Name,
    iterations: Annotated[int, typer.Option(min=0, max=1000, help="Iterations to add to the maximum.")] = 0,
    budget_dollars: Annotated[float | None, typer.Option(metavar="X", min=0.0, help="New bound on dollars.")] = None,
    budget_tokens: Annotated[int, typer.Option(metavar="N", min=0, help="New bound on tokens.")] = 0,
    budget_steps: Annotated[int, typer.Option(metavar="N", min=0, help="New bound on environment steps.")] = 0,
    as_json: Json = False,
    data_dir: DataDir = None,
    address: Address = None,
    token: Token = None,
) -> None:
    """Extend an ended session, or take it up again, and follow it where no server does."""
    from dressage.api.v1 import session_pb2
    from dressage.cli import listings

    budget = session_pb2.Budget(dollars=budget_dollars, tokens=budget_tokens, env_steps=budget_steps)
    work = listings.resume(session, iterations=iterations, budget=budget, as_json=as_json)
    raise typer.Exit(_with(work, address, token, data_dir, start="full"))


@app.command()
def steer(
    session: Name,
    note: Annotated[str, typer.Argument(help="What the next revision must heed.")] = "",
    reward: Annotated[
        Path | None,
        typer.Option(
            "--reward",
            "--proposal",
            metavar="FILE",
            help="Evaluate this reward, or the proposal of another method, next; replaces a proposal that waits.",
        ),
    ] = None,
    criteria: Annotated[
        Path | None,
        typer.Option(metavar="FILE.json", help="Criteria instead of the session's: [{title, description}]."),
    ] = None,
    rebase_to: Annotated[
        int, typer.Option(metavar="N", min=0, help="Iteration that the next revision starts from.")
    ] = 0,
    as_json: Json = False,
    data_dir: DataDir = None,
    address: Address = None,
    token: Token = None,
) -> None:
    """Steer the next iteration: a note, a proposal, criteria, an iteration to start from."""
    from dressage.cli import guidance

    told = guidance.Told(note=note, reward=reward, criteria=criteria, rebase_to=rebase_to)
    _act(guidance.steer(session, told), "takes it into its next iteration", as_json, address, token, data_dir)


@app.command()
def approve(
    session: Name,
    note: Annotated[str, typer.Option(help="Remarks, kept with the iteration.")] = "",
    iteration: Annotated[int, typer.Option(min=0, metavar="N", help="The iteration that is meant.")] = 0,
    as_json: Json = False,
    data_dir: DataDir = None,
    address: Address = None,
    token: Token = None,
) -> None:
    """Let the proposal that waits be evaluated (see `run --approve`)."""
    _act(
        lambda client: client.approve_session(session, iteration=iteration, note=note),
        "evaluates its proposal",
        as_json,
        address,
        token,
        data_dir,
    )


@app.command()
def label(
    rollout: Annotated[
        str, typer.Argument(metavar="ROLLOUT", help="Artifact key of a rollout: sessions/…/50000_median.npz.")
    ],
    score: Annotated[float, typer.Argument(min=0.0, max=1.0, help="0: not the behaviour; 1: just it.")],
    comment: Annotated[str, typer.Option(help="Remarks.")] = "",
    as_json: Json = False,
    data_dir: DataDir = None,
    address: Address = None,
    token: Token = None,
) -> None:
    """Score a rollout yourself; shown beside the judges' scores, with how both agree."""
    from dressage.cli import guidance

    answer = _with(guidance.label(rollout, score, comment), address, token, data_dir)
    guidance.print_label(answer, as_json=as_json)


@app.command()
def rollouts(
    session: Name, as_json: Json = False, data_dir: DataDir = None, address: Address = None, token: Token = None
) -> None:
    """A session's recorded rollouts with the scores of judges and people."""
    from dressage.cli import guidance

    guidance.print_rollouts(_with(guidance.rollouts(session), address, token, data_dir), as_json=as_json)


@app.command()
def diff(
    session: Name,
    first: Annotated[int, typer.Argument(metavar="A", min=1, help="Number of an iteration.")],
    second: Annotated[int, typer.Argument(metavar="B", min=1, help="Number of another.")],
    as_json: Json = False,
    data_dir: DataDir = None,
    address: Address = None,
    token: Token = None,
) -> None:
    """Two iterations side by side: scores, hyperparameters and the unified diff of their proposals."""
    from dressage.cli import guidance

    pair = _with(guidance.pair(session, first, second), address, token, data_dir)
    guidance.print_diff(*pair, as_json=as_json)


@app.command()
def delete(
    session: Name,
    force: Annotated[bool, typer.Option(help="Cancel it first if it runs.")] = False,
    as_json: Json = False,
    data_dir: DataDir = None,
    address: Address = None,
    token: Token = None,
) -> None:
    """Mark a session as deleted; `undelete` takes it back."""
    _act(lambda client: client.delete_session(session, force=force), "deleted", as_json, address, token, data_dir,
         at_work=False)  # fmt: skip


@app.command()
def undelete(
    session: Name, as_json: Json = False, data_dir: DataDir = None, address: Address = None, token: Token = None
) -> None:
    """Take a deletion back."""
    _act(lambda client: client.undelete_session(session), "is back", as_json, address, token, data_dir, at_work=False)


@app.command()
def lineage(
    session: Name, as_json: Json = False, data_dir: DataDir = None, address: Address = None, token: Token = None
) -> None:
    """The tree of a session's iterations, with scores and lessons."""
    from dressage.cli import listings

    async def work(connection: Connection) -> Any:
        return await connection.client.get_lineage(session)

    listings.print_lineage(_with(work, address, token, data_dir), as_json=as_json)


def _act(
    act: Callable[[Any], Awaitable[Any]],
    said: str,
    as_json: bool,
    address: str | None,
    token: str | None,
    data_dir: Any,
    *,
    at_work: bool = True,
) -> None:
    """Does something to a session and says so, or prints the session."""
    from dressage.cli import output, summary

    async def work(connection: Connection) -> Any:
        session = await act(connection.client)
        watch = f"dressage sessions watch {session.name.rpartition('/')[2]}{connection.flags}"
        waits = at_work and summary.state_now(session, connection) == "interrupted"
        return session, f", once `{watch}` or a server goes on with it" if waits else ""

    session, when = _with(work, address, token, data_dir)
    if as_json:
        output.print_json(output.message_dict(session))
    else:
        print(f"{session.name} {said}{when}")
