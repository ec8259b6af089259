"""Requests and output of `dressage sessions list|show|watch|resume|lineage`."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from dressage.api.v1 import session_pb2 as pb
from dressage.api.v1 import session_service_pb2 as sessions_pb
from dressage.cli import output, run, summary
from dressage.client.aio import ENDED
from dressage.local.connection import Connection
from dressage.sdk import screen
from dressage.sdk.results import Result, collect, state_now
from dressage.sdk.texts import course_text, duration, mean_text, quantity, score_text, short, warm_start_text

_INTENT_SHOWN = 48
_MAX_VALUES = 6
_SEARCH_COLUMNS = ("iteration", "phase", "author", "score", "candidates", "chosen", "returns", "episodes", "remark")


@dataclass(frozen=True)
class Entry:
    """A session in a list."""

    session: pb.Session
    state: str
    """Its state as `state_now` returns it."""
    flags: str
    """Options with which another command uses the same server."""


def sessions(*, show_deleted: bool, limit: int) -> Callable[[Connection], Awaitable[list[Entry]]]:
    """Return a function that lists sessions."""

    async def work(connection: Connection) -> list[Entry]:
        entries: list[Entry] = []
        async for session in connection.client.list_sessions(show_deleted=show_deleted, page_size=min(limit, 1000)):
            entries.append(Entry(session, state_now(session, connection), connection.flags))
            if len(entries) == limit:
                break
        return entries

    return work


def print_sessions(entries: list[Entry], *, as_json: bool) -> None:
    """Print a table of sessions, and how to resume an interrupted one."""
    if as_json:
        output.print_json({"sessions": [output.message_dict(entry.session) for entry in entries]})
        return
    rows = [
        (
            short(session.name),
            _state(entry),
            short(session.spec.environment),
            cut(session.spec.intent),
            f"{session.current_iteration}/{session.spec.max_iterations}",
            _best_score(session),
            session.create_time.ToDatetime().strftime("%Y-%m-%d %H:%M"),
        )
        for entry in entries
        for session in (entry.session,)
    ]
    columns = ("session", "state", "environment", "intent", "iteration", "score", "created (UTC)")
    example = 'dressage run "run forward fast" --env HalfCheetah-v5'
    output.print_table(columns, rows, empty=f"no sessions yet (--all lists deleted ones); try: {example}")
    interrupted = next((entry for entry in entries if entry.state == "interrupted"), None)
    if interrupted is not None:
        name = short(interrupted.session.name)
        print(f"\ninterrupted: no server runs here; resume with: dressage sessions watch {name}{interrupted.flags}")


def _state(entry: Entry) -> str:
    session = entry.session
    waits = f" ({session.queue.place} of {session.queue.length} in the queue)" if session.HasField("queue") else ""
    deleted = " (deleted)" if session.HasField("delete_time") else ""
    return entry.state + (waits if entry.state != "interrupted" else "") + deleted


def _best_score(session: pb.Session) -> str:
    if session.HasField("best_score"):
        return score_text(session.best_score)
    return score_text(session.best_judgment.score) if session.HasField("best_judgment") else ""


def _score(iteration: dict[str, Any]) -> str:
    """Return the score of an iteration in the terms of its method."""
    score = iteration.get("score", iteration.get("judgment", {}).get("score"))
    if score is None:
        return "0.00" if "judgment" in iteration else ""
    return score_text(float(score))


def _change(iteration: dict[str, Any]) -> str:
    """Return the planned change of an iteration, else what its proposal consists of, in one line."""
    custom = {name: value for name, value in iteration.get("custom", {}).items() if name != "@type"}
    values = iteration.get("parameters", {}).get("values", [])
    return (
        iteration.get("planned_change", "")
        or _terms(iteration.get("reward", {}))
        or cut(", ".join(f"{name} {value}" for name, value in custom.items()))
        or cut(", ".join(f"{value:g}" for value in values))
    )


def _terms(reward: dict[str, Any]) -> str:
    """Return the names of a reward's terms; without any, its formula."""
    terms = reward.get("terms", {})
    return cut(f"reward of {', '.join(terms)}") if terms else str(reward.get("latex", ""))


def cut(text: str) -> str:
    """Return the beginning of a text, on one line."""
    line = " ".join(text.split())
    return line if len(line) <= _INTENT_SHOWN else line[: _INTENT_SHOWN - 1] + "…"


def session(name: str) -> Callable[[Connection], Awaitable[tuple[Result, list[dict[str, Any]]]]]:
    """Return a function that gets the result of a session and its iterations, as JSON values."""

    async def work(connection: Connection) -> tuple[Result, list[dict[str, Any]]]:
        result = await collect(await connection.client.get_session(name), connection)
        return result, [output.message_dict(entry) async for entry in connection.client.list_iterations(name)]

    return work


def print_session(result: Result, iterations: list[dict[str, Any]], *, as_json: bool) -> None:
    """Print a session with its iterations, given as JSON values."""
    if as_json:
        output.print_json({**summary.result_dict(result), "iterations": iterations})
        return
    print(f"{result.intent}  in {result.environment}, model {result.message.spec.model or 'default'}\n")
    summary.print_result(result)
    print()
    if any(_is_search(iteration) for iteration in iterations):
        print_search_iterations(iterations)
        return
    rows = [
        (
            iteration.get("number", ""),
            iteration.get("phase", "").removeprefix("PHASE_").lower(),
            iteration.get("author", ""),
            _score(iteration),
            iteration.get("repairs", 0),
            _change(iteration),
            iteration.get("failure", {}).get("message", "") or iteration.get("judgment", {}).get("diagnosis", ""),
        )
        for iteration in iterations
    ]
    output.print_table(
        ("iteration", "phase", "author", "score", "repairs", "change", "diagnosis"), rows, empty="no iterations"
    )


def _is_search(iteration: dict[str, Any]) -> bool:
    """Return whether an iteration, as JSON values, proposes parameters, code or programs."""
    return any(kind in iteration for kind in ("parameters", "code", "program"))


def print_search_iterations(iterations: Sequence[dict[str, Any]]) -> None:
    """Print a table of iterations, given as JSON values; those of other methods have no candidates."""
    output.print_table(_SEARCH_COLUMNS, [_search_row(iteration) for iteration in iterations], empty="no iterations")


def _search_row(iteration: dict[str, Any]) -> tuple[object, ...]:
    proposal = iteration.get("parameters") or iteration.get("code") or iteration.get("program") or {}
    candidates = proposal.get("candidates", [])
    chosen = proposal.get("chosen", 0)
    best = candidates[chosen - 1] if 1 <= chosen <= len(candidates) else {}
    search = proposal.get("search", {})
    score = iteration.get("score", best.get("mean_return", search.get("best_score")))
    return (
        iteration.get("number", ""),
        iteration.get("phase", "").removeprefix("PHASE_").lower(),
        iteration.get("author", ""),
        "" if score is None else mean_text(float(score)),
        _candidates(candidates, search),
        f"{chosen} {best.get('origin', '')}".strip() if best else "",
        _range(best.get("returns", [])),
        proposal.get("episodes", search.get("episodes", "")),
        _remark(iteration, proposal, candidates),
    )


def _candidates(candidates: Sequence[dict[str, Any]], search: dict[str, Any]) -> str:
    if not candidates or (search.get("evaluated") and "best_program" in search):
        return f"{int(search['evaluated']):,}" if search.get("evaluated") else ""
    cached = sum(1 for each in candidates if each.get("duplicate_of") or each.get("duplicate"))
    failed = sum(1 for each in candidates if each.get("failure"))
    notes = [f"{count} {name}" for count, name in ((cached, "cached"), (failed, "failed")) if count]
    return f"{len(candidates)} ({', '.join(notes)})" if notes else str(len(candidates))


def _range(returns: Sequence[float]) -> str:
    if not returns:
        return ""
    low, high = min(returns), max(returns)
    return mean_text(low) if low == high else f"{mean_text(low)} to {mean_text(high)}"


def _remark(iteration: dict[str, Any], proposal: dict[str, Any], candidates: Sequence[dict[str, Any]]) -> str:
    """Return the failure of an iteration, else the rule that changed its revision, else the values of the chosen candidate."""
    failure = iteration.get("failure", {}).get("message", "")
    rules = ", ".join(f"revision {each['rule']}" for each in candidates if each.get("rule"))
    values = [f"{value:g}" for value in proposal.get("values", [])[:_MAX_VALUES]]
    more = ", …" if len(proposal.get("values", [])) > _MAX_VALUES else ""
    return failure or rules or proposal.get("program", "") or ", ".join(values) + more


def watch(
    name: str, *, as_json: bool, detail: screen.Detail = "normal", fail_below: float | None = None
) -> Callable[[Connection], Awaitable[int]]:
    """Return a function that follows a session and returns the exit code; as JSON, it prints an array of events, one a line."""

    async def work(connection: Connection) -> int:
        if as_json:
            await _print_events(name, connection)
            return _status(await collect(await connection.client.get_session(name), connection), fail_below)
        session = await connection.client.get_session(name)
        try:
            await run.show(session.name, connection, as_json=False, detail=detail)
        except asyncio.CancelledError:
            if connection.kind == "stack":
                run.print_remark(f"\nstopping; `dressage serve` on this data folder resumes {session.name}")
            else:
                run.print_remark(f"\n{session.name} continues\n{run.hints(session.name, connection)}")
            raise
        result = await run.result_of(await connection.client.get_session(name), connection)
        summary.print_result(result)
        return _status(result, fail_below)

    return work


def _status(result: Result, fail_below: float | None) -> int:
    """Return the exit status of a command that only follows a session: 0, or 3 for a low score."""
    return 0 if fail_below is None else summary.exit_code(result, fail_below=fail_below)


async def _print_events(name: str, connection: Connection) -> None:
    first = True
    try:
        async for response in connection.client.watch_session(name):
            if not response.HasField("event"):
                continue
            text = json.dumps(output.message_dict(response.event), ensure_ascii=False)
            sys.stdout.write(("[" if first else ",\n") + text)
            sys.stdout.flush()
            first = False
    finally:  # also after Ctrl-C, so that the output is a complete document
        sys.stdout.write("[]\n" if first else "]\n")


def resume(
    name: str,
    *,
    iterations: int,
    budget: pb.Budget | None = None,
    as_json: bool,
    detail: screen.Detail = "normal",
    fail_below: float | None = None,
) -> Callable[[Connection], Awaitable[int]]:
    """Return a function that resumes a session, follows it if it runs in this process, and returns the exit code."""

    async def work(connection: Connection) -> int:
        before = await connection.client.get_session(name)
        earlier = (
            await run.read_history(before, connection) if connection.kind == "stack" and before.state in ENDED else None
        )
        resumed = await connection.client.resume_session(name, additional_iterations=iterations, budget=budget)
        if not as_json:
            print(f"resuming {short(name)}: {limits_change(before.spec, resumed.spec)}", flush=True)
        if connection.kind != "stack":
            if as_json:
                output.print_json(output.message_dict(resumed))
            else:
                print(f"{resumed.name} continues\n{run.hints(resumed.name, connection)}")
            return 0
        await run.show(resumed.name, connection, as_json=as_json, detail=detail, earlier=earlier)
        result = await run.result_of(await connection.client.get_session(name), connection)
        if as_json:
            output.print_json(summary.result_dict(result))
        else:
            summary.print_result(result)
        return summary.exit_code(result, fail_below=fail_below)

    return work


def limits_change(before: pb.SessionSpec, after: pb.SessionSpec) -> str:
    """Return what resuming a session has changed in its limits, in one line."""
    more = after.max_iterations - before.max_iterations
    iterations = f"{quantity(more, 'more iteration')}, at most {after.max_iterations} in total" if more else ""
    unchanged = f"no further iteration, at most {after.max_iterations} in total"
    limits = [
        f"at most {limit}"
        for old, new in zip(_limits(before.budget), _limits(after.budget), strict=True)
        if (limit := new) and new != old
    ]
    return "; ".join([iterations or unchanged, *limits])


def _limits(budget: pb.Budget) -> list[str]:
    """Return the limits of a budget as texts, in a fixed order; empty for no limit."""
    minutes = duration(budget.wall_time.ToTimedelta().total_seconds()) if budget.HasField("wall_time") else ""
    return [
        f"{budget.dollars:g} $" if budget.HasField("dollars") else "",
        quantity(budget.tokens, "token") if budget.tokens else "",
        quantity(budget.env_steps, "environment step") if budget.env_steps else "",
        minutes,
    ]


def lineage_parts(node: sessions_pb.LineageNode) -> list[str]:
    """Return the facts about an iteration that the tree shows after its number and score."""
    interval = f"[{node.interval_low:.2f}, {node.interval_high:.2f}]" if node.HasField("interval_low") else ""
    return [
        interval,
        node.judged_by
        and f"judged by {node.judged_by}" + (f", no video: {node.without_video}" if node.without_video else ""),
        "(best)" if node.best else "",
        "(rewrite)" if node.structural_rewrite else "",
        f"(edited by a person: {', '.join(node.edited)})" if node.edited else "",
        warm_start_text(node.warm_start) if node.HasField("warm_start") else "",
        course_text(node.course) if node.HasField("course") else "",
        node.planned_change,
        node.lesson and f"learned: {node.lesson}",
        *(f"note: {note}" for note in node.notes),
        *(f"warning: {warning.partition(':')[0]}" for warning in node.warnings),
    ]


def print_lineage(tree: sessions_pb.Lineage, *, as_json: bool) -> None:
    """Print the tree of iterations, children below their parents."""
    if as_json:
        output.print_json(output.message_dict(tree))
        return
    from rich.text import Text
    from rich.tree import Tree

    root = Tree("iterations", hide_root=True)
    branches = {"": root}
    for node in tree.nodes:
        score = score_text(node.score) if node.HasField("score") else "  – "
        text = Text(f"{short(node.iteration)}  {score}", style="bold green" if node.best else "")
        for part in filter(None, lineage_parts(node)):
            text.append(f"  {part}", style="not bold default")
        branches[node.iteration] = branches.get(node.parent, root).add(text)
    output.console().print(root)
    for lesson in tree.lessons:
        tier = sessions_pb.Lesson.Tier.Name(lesson.tier).removeprefix("TIER_")
        output.console().print(Text(f"{tier:<8}{lesson.text}"))
