"""The result of a session as a command prints it: as JSON values, and as a table with the next commands."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from dressage.api.v1 import session_pb2 as pb
from dressage.cli import output
from dressage.installation import has_sb3
from dressage.sdk.progress import is_search, target
from dressage.sdk.results import Result, rows, waits_for_approval
from dressage.sdk.texts import seconds_waited, short


def result_dict(result: Result) -> dict[str, Any]:
    """Return the result as JSON values; paths are set if the artifacts are on this machine."""
    session, judgment, confirmation = result.message, result.judgment, result.confirmation
    missing = result.curve.missing if result.curve is not None and result.picture is None else ""
    return {
        "session": output.message_dict(session),
        "state": result.state,
        "score": asdict(judgment) if judgment is not None else None,
        **(_search_dict(result) if is_search(session) else {}),
        "best_score": session.best_score if session.HasField("best_score") else None,
        "goal": session.goal,
        "confirmation": asdict(confirmation) if confirmation is not None else None,
        "returns": output.message_dict(session.returns) if session.HasField("returns") else None,
        "seconds": result.seconds,
        "seconds_waited": seconds_waited(session),
        "policy": _place(session.best_policy, result),
        "video": _place(session.best_video, result),
        "learning_curve": None if result.picture is None else {"artifact": "", "path": str(result.picture)},
        "no_learning_curve": missing,
        "flags": result.connection.flags,
    }


def _search_dict(result: Result) -> dict[str, Any]:
    """Return the score of a search on report seeds, and what the search took; values are None without a report."""
    report = result.report
    return {
        "score": None if report is None else report.mean,
        "interval": None if report is None else report.interval,
        "report_returns": None if report is None else report.returns,
        "report_first_seed": None if report is None else report.first_seed,
        "confirmations": None if report is None else report.confirmations,
        "target": target(result.message),
        "episodes": result.episodes,
        "candidates": result.candidates,
        "cache_hits": result.cache_hits,
    }


def _place(key: str, result: Result) -> dict[str, str | None] | None:
    if not key:
        return None
    path = result.connection.local_path(key)
    return {"artifact": key, "path": str(path) if path is not None else None}


BELOW = 3
"""Exit status of a session whose score is below `--fail-below`."""


def exit_code(result: Result, *, fail_below: float | None = None) -> int:
    """Return 0 if there is a policy (even below the threshold), 130 if the session was cancelled, else 1.

    :param fail_below: score on fresh or report seeds, else of the best iteration, below which the status is 3; None: no limit.
        A training without a judge has no score.
    """
    state = result.message.state
    if state == pb.SESSION_STATE_CANCELLED:
        return 130
    if state not in (pb.SESSION_STATE_SUCCEEDED, pb.SESSION_STATE_EXHAUSTED):
        return 1
    if fail_below is None:
        return 0
    if result.report is not None:
        score: float | None = result.report.mean
    else:
        judgment = result.confirmation or result.judgment
        score = judgment.score if judgment is not None else result.score
    return 0 if score is not None and score >= fail_below else BELOW


_STYLES = {
    "succeeded": "bold green",
    "exhausted": "bold yellow",
    "failed": "bold red",
    "cancelled": "bold yellow",
    "interrupted": "bold yellow",
}


def print_result(result: Result) -> None:
    """Print the table, with the next commands."""
    from rich.table import Table
    from rich.text import Text

    session = result.message
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim")
    table.add_column(overflow="fold")
    (_, state_text), *others = rows(result)
    state = Text(state_text)
    state.stylize(_STYLES.get(result.state, "bold"), 0, len(result.state))
    table.add_row("session", Text(short(session.name)))
    table.add_row("state", state)
    lines = list(others)
    places = {"policy": session.best_policy, "video": session.best_video}
    lines += [(kind, str(result.connection.local_path(key) or key)) for kind, key in places.items() if key]
    if result.picture is not None:
        lines.append(("curve", str(result.picture)))
    elif result.curve is not None and result.curve.missing:
        lines.append(("curve", f"none, {result.curve.missing}"))
    lines += [("" if index else "next", command) for index, command in enumerate(next_commands(result))]
    for label, text in lines:
        table.add_row(label, Text(text))
    output.console().print(table)


_UNCHANGED = ("TEMPLATE_", "REWARD_REJECTED", "JUDGE_REJECTED", "MISSING_", "INVALID_", "UNSUPPORTED_")
"""How the reasons of failures begin that resuming repeats, because nothing has changed."""


def _resume(result: Result) -> list[str]:
    """Return the options of a useful `sessions resume`, with a leading space; empty if resuming would change nothing."""
    session, spec = result.message, result.message.spec
    # Without a model, a policy of the user's own is the only round.
    only_policy = bool(spec.code.policy_source) and spec.model.startswith("template/")
    if spec.model.startswith("recorded/"):  # only a server with the recordings can continue it
        return []
    if result.state == "exhausted":
        budgets = {
            pb.EXHAUSTION_REASON_DOLLARS: ("dollars", spec.budget.dollars),
            pb.EXHAUSTION_REASON_TOKENS: ("tokens", spec.budget.tokens),
            pb.EXHAUSTION_REASON_ENV_STEPS: ("steps", spec.budget.env_steps),
            pb.EXHAUSTION_REASON_WALL_TIME: ("minutes", spec.budget.wall_time.ToTimedelta().total_seconds() / 60),
        }
        if session.exhaustion_reason in budgets:
            option, limit = budgets[session.exhaustion_reason]
            return [f" --budget-{option} {2 * limit:.15g}"]
        unchanged = only_policy or spec.reward.train_only
        return [] if unchanged or session.exhaustion_reason == pb.EXHAUSTION_REASON_NO_PROPOSAL else [" --iterations 1"]
    if result.state == "failed":
        reason = session.failure.reason
        return [] if (only_policy and reason == "NO_POLICY") or reason.startswith(_UNCHANGED) else [""]
    return [""] if result.state == "cancelled" else []


def next_commands(result: Result) -> list[str]:
    """Return useful next commands."""
    session, at = result.message, result.connection.flags
    name = short(session.name)
    commands = []
    if session.best_policy:
        commands.append(f"dressage eval {name}{at}")
        if not is_search(session):  # only a network that a training made is exported so
            target_format = "--format sb3 -o policy" if has_sb3() else "--format onnx -o policy.onnx"
            commands.append(f"dressage export {name} {target_format}{at}")
        if result.connection.local_path(session.best_policy) is None:
            commands.insert(0, f"dressage artifacts get {session.best_policy} -o policy{at}")
    if session.best_video:
        commands.append(f"dressage render {name} -o {name}.mp4{at}")
    elif session.best_policy and session.method == "program":
        commands.append(f"dressage render {name} -o {name}.gif{at}")
    if waits_for_approval(result):
        commands.insert(0, f"dressage sessions approve {name}{at}")
    if result.state in ("interrupted", "pending", "running"):
        commands.append(f"dressage sessions watch {name}{at}")
    commands += [f"dressage sessions resume {name}{more}{at}" for more in _resume(result)]
    return [*commands, f"dressage sessions show {name}{at}"]
