"""`dressage sessions …`: the options; `listings` and `guidance` do the work."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from dressage.cli.options import (
    BudgetOptions,
    CommonOptions,
    SessionName,
    SteerOptions,
    ViewOptions,
    expand_groups,
)

if TYPE_CHECKING:
    from dressage.local.connection import Connection

app = typer.Typer(help="List, show, steer and extend sessions.", no_args_is_help=True)

IterationNumber = Annotated[
    int, typer.Option(min=0, metavar="N", show_default=False, help="Number of the iteration [the waiting one].")
]


def _execute(
    work: Callable[[Connection], Awaitable[Any]],
    common: CommonOptions,
    *,
    start: Literal["no", "records", "own"] = "records",
) -> Any:
    from dressage.local.connection import execute

    return execute(common.server(), work, start=start)


@app.command("list")
@expand_groups
def list_(
    common: CommonOptions,
    all_: Annotated[bool, typer.Option("--all", help="Include deleted sessions.")] = False,
    limit: Annotated[int, typer.Option(metavar="N", min=1, help="Maximum number of sessions.")] = 50,
) -> None:
    """List sessions, newest first."""
    from dressage.cli import listings

    entries = _execute(listings.sessions(show_deleted=all_, limit=limit), common)
    listings.print_sessions(entries, as_json=common.as_json)


@app.command()
@expand_groups
def show(session: SessionName, common: CommonOptions) -> None:
    """Show one session: state, scores, iterations, policy and video."""
    from dressage.cli import listings

    listings.print_session(*_execute(listings.session(session), common), as_json=common.as_json)


@app.command()
@expand_groups
def watch(session: SessionName, view: ViewOptions, common: CommonOptions) -> None:
    """Follow a session until it ends.

    Ctrl-C ends the command; the session continues where a server runs.
    """
    from dressage.cli import listings

    # The stack resumes the session if a crash or a stop has interrupted it.
    code = _execute(
        listings.watch(session, as_json=common.as_json, detail=view.detail, fail_below=view.fail_below),
        common,
        start="own",
    )
    raise typer.Exit(code)


@app.command()
@expand_groups
def cancel(
    session: SessionName,
    common: CommonOptions,
    reason: Annotated[str, typer.Option(metavar="TEXT", help="Reason, stored with the session.")] = "",
) -> None:
    """Cancel a session; its results so far are kept."""
    _act(lambda client: client.cancel_session(session, reason=reason), "is cancelled", common, ended_before=True)


@app.command()
@expand_groups
def resume(
    session: SessionName,
    budget: BudgetOptions,
    view: ViewOptions,
    common: CommonOptions,
    iterations: Annotated[
        int, typer.Option(metavar="N", min=0, max=1000, help="Number of iterations to add to the maximum.")
    ] = 0,
) -> None:
    """Resume an ended session, with more iterations or a larger budget."""
    from dressage.api.v1 import session_pb2
    from dressage.cli import listings
    from dressage.sdk.specs import set_arguments

    limits = session_pb2.SessionSpec()
    set_arguments(limits, budget.arguments, budget)
    work = listings.resume(
        session,
        iterations=iterations,
        budget=limits.budget,
        as_json=common.as_json,
        detail=view.detail,
        fail_below=view.fail_below,
    )
    raise typer.Exit(_execute(work, common, start="own"))


@app.command()
@expand_groups
def steer(
    session: SessionName,
    options: SteerOptions,
    common: CommonOptions,
    note: Annotated[str, typer.Argument(metavar="NOTE", help="A direction for the next revision.")] = "",
) -> None:
    """Steer the next iteration.

    Give a note, a proposal, new criteria, an iteration to start from, or whether to continue from its policies.
    """
    from dressage.api.arguments import STEER
    from dressage.cli import guidance
    from dressage.sdk.argument_names import option_names

    effect = "evaluates it next" if "reward" in options else "uses it in its next iteration"
    with option_names(STEER):
        _act(guidance.steer(session, note, options), effect, common, resume=True)


@app.command()
@expand_groups
def approve(
    session: SessionName,
    common: CommonOptions,
    note: Annotated[str, typer.Option(metavar="TEXT", help="Remarks, stored with the iteration.")] = "",
    iteration: IterationNumber = 0,
) -> None:
    """Approve the waiting proposal.

    Sessions wait for approval with `dressage run --approve`.
    """
    _act(
        lambda client: client.approve_session(session, iteration=iteration, note=note), "evaluates its proposal", common
    )


@app.command()
@expand_groups
def label(
    rollout: Annotated[
        str, typer.Argument(metavar="ROLLOUT", help="Artifact key of a rollout: sessions/…/50000_median.npz.")
    ],
    score: Annotated[
        float, typer.Argument(metavar="SCORE", min=0.0, max=1.0, help="0: not the behaviour; 1: exactly the behaviour.")
    ],
    common: CommonOptions,
    comment: Annotated[str, typer.Option(metavar="TEXT", help="Remarks.")] = "",
) -> None:
    """Score a rollout yourself.

    Prints the scores of the judges, and how often labels and judges agree.
    """
    from dressage.cli import guidance

    response = _execute(guidance.label(rollout, score, comment), common)
    guidance.print_label(response, as_json=common.as_json)


@app.command()
@expand_groups
def rollouts(session: SessionName, common: CommonOptions) -> None:
    """List the recorded rollouts of a session with their scores."""
    from dressage.cli import guidance

    guidance.print_rollouts(_execute(guidance.rollouts(session), common), as_json=common.as_json)


@app.command()
@expand_groups
def diff(
    session: SessionName,
    first: Annotated[int, typer.Argument(metavar="A", min=1, help="Number of an iteration.")],
    second: Annotated[int, typer.Argument(metavar="B", min=1, help="Number of another iteration.")],
    common: CommonOptions,
) -> None:
    """Compare two iterations.

    Prints scores, hyperparameters and the unified diff of the proposals.
    """
    from dressage.cli import guidance

    guidance.print_diff(*_execute(guidance.pair(session, first, second), common), as_json=common.as_json)


@app.command()
@expand_groups
def delete(
    session: SessionName,
    common: CommonOptions,
    force: Annotated[bool, typer.Option("--force", help="Cancel the session first if it runs.")] = False,
) -> None:
    """Mark a session as deleted; `undelete` restores it."""
    from dressage.errors import FailedPrecondition

    try:
        _act(lambda client: client.delete_session(session, force=force), "is deleted", common, needs_server=False)
    except FailedPrecondition as error:
        if error.reason != "SESSION_NOT_ENDED":
            raise
        message = f"{session} has not ended; cancel it first (`dressage sessions cancel {session}`), or add --force"
        raise FailedPrecondition(message, reason=error.reason) from error


@app.command()
@expand_groups
def undelete(session: SessionName, common: CommonOptions) -> None:
    """Restore a deleted session."""
    _act(lambda client: client.undelete_session(session), "is restored", common, needs_server=False)


@app.command()
@expand_groups
def lineage(session: SessionName, common: CommonOptions) -> None:
    """Show the iterations of a session as a tree.

    Prints scores, changes and lessons.
    """
    from dressage.cli import listings

    async def work(connection: Connection) -> Any:
        return await connection.client.get_lineage(session)

    listings.print_lineage(_execute(work, common), as_json=common.as_json)


def _act(
    act: Callable[[Any], Awaitable[Any]],
    effect: str,
    common: CommonOptions,
    *,
    needs_server: bool = True,
    resume: bool = False,
    ended_before: bool = False,
) -> None:
    """Change a session and print the effect, or the session as JSON.

    :param needs_server: whether the effect comes only when a server continues the session.
    :param resume: whether the effect on an ended session comes only when it is resumed.
    :param ended_before: whether there is no effect on a session that has ended in another way.
    """
    from dressage.api.v1 import session_pb2
    from dressage.cli import output
    from dressage.client.aio import ENDED
    from dressage.sdk.results import state_name, state_now

    async def work(connection: Connection) -> Any:
        session = await act(connection.client)
        if ended_before and session.state in ENDED and session.state != session_pb2.SESSION_STATE_CANCELLED:
            return session, f"has ended before: {state_name(session.state)}"
        name = f"{session.name.rpartition('/')[2]}{connection.flags}"
        if needs_server and state_now(session, connection) == "interrupted":
            return session, f"{effect} once a server or `dressage sessions watch {name}` resumes it"
        if resume and session.state in ENDED:
            return session, f"{effect} once `dressage sessions resume {name}` continues it"
        return session, effect

    session, text = _execute(work, common)
    if common.as_json:
        output.print_json(output.message_dict(session))
    else:
        print(f"{session.name} {text}")
