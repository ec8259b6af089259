"""The summary of a session: as JSON values, and as a table."""

from __future__ import annotations

from typing import Any

from google.protobuf.json_format import ParseDict

from dressage.api.v1 import session_pb2 as pb
from dressage.cli import output
from dressage.installation import has_sb3
from dressage.local.connection import Connection
from dressage.sdk.curve_file import CURVE_FILE, Picture
from dressage.sdk.durations import duration, seconds_waited, seconds_worked
from dressage.sdk.judged import judged_text
from dressage.sdk.lengths import saved_text
from dressage.sdk.progress import is_search, target
from dressage.sdk.texts import counted, mean_text, queue_text, return_text, score_text, short


async def collect(session: pb.Session, connection: Connection, *, curve: Picture | None = None) -> dict[str, Any]:
    """Return the summary; paths are set if the artifacts are on this machine.

    :param curve: the learning curve drawn just now; if there is none, an existing picture in the folder of the policy is used.
    """
    curve = curve or Picture()
    picture = curve.path
    if picture is None and session.best_policy:
        picture = connection.local_path(f"{session.best_policy.rpartition('/')[0]}/{CURVE_FILE}")
    search = search_dict(session) if is_search(session) else {}
    return {
        "session": output.message_dict(session),
        "state": state_now(session, connection),
        "score": judgment_dict(session.best_judgment) if session.HasField("best_judgment") else None,
        **search,
        "best_score": session.best_score if session.HasField("best_score") else None,
        "goal": session.goal,
        "confirmation": judgment_dict(session.confirmation) if session.HasField("confirmation") else None,
        "returns": output.message_dict(session.returns) if session.HasField("returns") else None,
        "seconds": seconds_worked(session),
        "seconds_waited": seconds_waited(session),
        "policy": _place(session.best_policy, connection),
        "video": _place(session.best_video, connection),
        "learning_curve": None if picture is None else {"artifact": "", "path": str(picture)},
        "no_learning_curve": curve.missing if picture is None else "",
        "flags": connection.flags,
    }


def search_dict(session: pb.Session) -> dict[str, Any]:
    """Return the score of a search on report seeds, and what the search took; values are None without a report."""
    report = session.report if session.HasField("report") else None
    return {
        "score": None if report is None else report.mean,
        "interval": None if report is None else [report.interval_low, report.interval_high],
        "report_returns": None if report is None else list(report.returns),
        "report_first_seed": None if report is None else report.first_seed,
        "confirmations": None if report is None else report.confirmations,
        "target": target(session),
        "episodes": session.episodes,
        "candidates": session.candidates,
        "cache_hits": session.cache_hits,
    }


def judgment_dict(judgment: pb.Judgment) -> dict[str, Any]:
    """Return the score of a judgment with its spread."""
    samples = list(judgment.samples)
    return {
        "score": judgment.score,
        "passed": judgment.passed,
        "samples": samples,
        "spread": _std(samples),
        "interval": [judgment.interval_low, judgment.interval_high] if samples else None,
        "criteria": {criterion.name: criterion.score for criterion in judgment.criteria},
        "diagnosis": judgment.diagnosis,
        "judged": judged_text(judgment),
        "judged_by": judgment.judged_by,
        "without_video": judgment.without_video,
        "rollouts": judgment.rollouts,
        "video_rollouts": judgment.video_rollouts,
        "unjudged_rollouts": judgment.unjudged_rollouts,
        "video_left_out": judgment.video_left_out,
    }


def _std(samples: list[float]) -> float | None:
    if len(samples) < 2:
        return None
    middle = sum(samples) / len(samples)
    return float((sum((sample - middle) ** 2 for sample in samples) / (len(samples) - 1)) ** 0.5)


def _place(key: str, connection: Connection) -> dict[str, str | None] | None:
    if not key:
        return None
    path = connection.local_path(key)
    return {"artifact": key, "path": str(path) if path is not None else None}


def state_name(state: int) -> str:
    """Return the name of a state: `succeeded`, `exhausted`, …"""
    return pb.SessionState.Name(state).removeprefix("SESSION_STATE_").lower()  # type: ignore[arg-type]


def state_now(session: pb.Session, connection: Connection) -> str:
    """Return the state, or `interrupted` if the session has not ended and no server continues it."""
    pending = session.state in (pb.SESSION_STATE_PENDING, pb.SESSION_STATE_RUNNING)
    return "interrupted" if pending and connection.read_only else state_name(session.state)


BELOW = 3
"""Exit status of a session whose score is below `--fail-below`."""


def exit_code(session: pb.Session, *, fail_below: float | None = None) -> int:
    """Return 0 if there is a policy (even below the threshold), 130 if the session was cancelled, else 1.

    :param fail_below: score below which the status is 3; None: no limit. A training without a judge has no score.
    """
    if session.state == pb.SESSION_STATE_CANCELLED:
        return 130
    if session.state not in (pb.SESSION_STATE_SUCCEEDED, pb.SESSION_STATE_EXHAUSTED):
        return 1
    if fail_below is None:
        return 0
    score = _final_score(session)
    return 0 if score is not None and score >= fail_below else BELOW


def _final_score(session: pb.Session) -> float | None:
    """Return the score on fresh or report seeds, else the best one."""
    if session.HasField("report"):
        return session.report.mean
    if session.HasField("confirmation"):
        return session.confirmation.score
    if session.HasField("best_judgment"):
        return session.best_judgment.score
    return session.best_score if session.HasField("best_score") else None


_STYLES = {
    "succeeded": "bold green",
    "exhausted": "bold yellow",
    "failed": "bold red",
    "cancelled": "bold yellow",
    "interrupted": "bold yellow",
}


def text(facts: dict[str, Any]) -> Any:
    """Return the table, with the next commands."""
    from rich.table import Table
    from rich.text import Text

    session = facts["session"]
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim")
    table.add_column(overflow="fold")
    (_, state_text), *results = result_rows(facts)
    state = Text(state_text)
    state.stylize(_STYLES.get(facts["state"], "bold"), 0, len(facts["state"]))
    rows: list[tuple[str, Any]] = [("session", short(session["name"])), ("state", state), *results]
    places = {"policy": facts["policy"], "video": facts["video"], "curve": facts["learning_curve"]}
    rows += [(kind, place["path"] or place["artifact"]) for kind, place in places.items() if place]
    rows += [("curve", f"none, {facts['no_learning_curve']}")] if facts["no_learning_curve"] else []
    rows += [("next" if first else "", command) for first, command in _next(facts)]
    for name, value in rows:
        table.add_row(name, value if isinstance(value, Text) else Text(value))
    return table


def result_rows(facts: dict[str, Any]) -> list[tuple[str, str]]:
    """Return state, scores, returns and effort of a session as texts; the state is the first."""
    session = facts["session"]
    waits = "waits for your approval" if _waits_for_approval(facts) else ""
    reasons = filter(None, (_queue(session), waits, session.get("state_reason"), *_failure(session)))
    reason = "; ".join(text.rstrip(".") for text in reasons)
    rows: list[tuple[str, str]] = [("state", ": ".join(filter(None, (facts["state"], reason))))]
    if "report_returns" in facts and facts["score"] is not None:
        rows.append(("score", _report(facts)))
    elif facts["score"]:
        rows.append(("score", _score(facts["score"], _threshold(session))))
        rows += [("judged by", facts["score"]["judged"])] if facts["score"].get("judged") else []
    elif facts.get("best_score") is not None:
        goal = f" (succeeds from {facts['goal']})" if facts["goal"] else ""
        rows.append(("score", f"{score_text(facts['best_score'])}{goal}"))
    rows += _confirmed(facts)
    rows += _returns(facts["returns"])
    if "episodes" in facts:
        rows.append(("search", _effort(facts)))
    if facts["seconds"] is not None:
        steps = counted(session.get("env_steps", 0), "environment step")
        saved = session.get("env_steps_saved", 0)
        spared = f" ({saved_text(saved)})" if saved else ""
        waited = facts.get("seconds_waited", 0.0)
        idle = f", not counting {duration(waited)} of waiting" if waited >= 1 else ""
        rows.append(("took", f"{duration(facts['seconds'])}{idle}, {steps}{spared}"))
    return rows


def _confirmed(facts: dict[str, Any]) -> list[tuple[str, Any]]:
    """Return the score on fresh seeds, and what judged it where that differs from the first score's."""
    again, first = facts["confirmation"], facts["score"] or {}
    if not again:
        return []
    judged = again.get("judged", "")
    return [("confirmed", _score(again, _threshold(facts["session"])))] + (
        [("judged by", judged)] if judged and judged != first.get("judged") else []
    )


def _waits_for_approval(facts: dict[str, Any]) -> bool:
    return facts["session"].get("phase") == "PHASE_APPROVE" and facts["state"] in ("running", "interrupted")


def _queue(session: dict[str, Any]) -> str:
    queue = ParseDict(session.get("queue", {}), pb.QueuePlace())
    return queue_text(queue) if queue.place else ""


def _failure(session: dict[str, Any]) -> list[str]:
    """Return message and remedy of a failure, each where the text before does not contain it."""
    failure, shown = session.get("failure", {}), session.get("state_reason", "")
    parts = []
    for part in (failure.get("message", ""), failure.get("remedy", "")):
        if part and part not in shown:
            parts.append(part)
            shown += part
    return parts


def _threshold(session: dict[str, Any]) -> float | None:
    """Return the score from which the session succeeds; None if it has none."""
    return session.get("spec", {}).get("pass_threshold") or None


def _score(judgment: dict[str, Any], threshold: float | None) -> str:
    verdict = "passed" if judgment["passed"] else "below the threshold"
    shown = score_text(judgment["score"], threshold=threshold)
    if judgment["spread"] is not None:
        seeds = len(judgment["samples"])
        shown += f" ± {judgment['spread']:.2f} over {seeds} seed{'s' if seeds > 1 else ''}"
    if judgment["interval"] is not None:
        low, high = judgment["interval"]
        shown += f", 95 % interval {low:.2f} to {high:.2f}"
    return f"{shown} ({verdict})"


def _report(facts: dict[str, Any]) -> str:
    """Return the score of a search: `498.2 over 100 episodes on report seeds, 95 % interval … (target 475: reached)`."""
    low, high = facts["interval"]
    count = counted(len(facts["report_returns"]), "episode")
    program = facts["session"].get("method") == "program"
    shown = f"{mean_text(facts['score'])} over {count} on report {'states' if program else 'seeds'}"
    shown += f", 95 % interval {mean_text(low)} to {mean_text(high)}"
    if facts["target"] is None:
        return shown
    rounding = _ROUNDING if program else 0.0
    reached = "reached" if facts["score"] >= facts["target"] - rounding else "not reached"
    return f"{shown} (target {facts['target']:g}: {reached})"


_ROUNDING = 1e-9
"""By which the mean return of a program may differ from its target, as in `dressage.programs.families`."""


def _effort(facts: dict[str, Any]) -> str:
    if facts["session"].get("method") == "program":
        cached = f", {facts['cache_hits']:,} of them from the cache" if facts["cache_hits"] else ""
        return f"{counted(facts['candidates'], 'program')}{cached}"
    cached = f", {facts['cache_hits']:,} more from the cache" if facts["cache_hits"] else ""
    return f"{counted(facts['episodes'], 'episode')}, {counted(facts['candidates'], 'candidate')}{cached}"


def _returns(returns: dict[str, Any] | None) -> list[tuple[str, Any]]:
    if returns is None:
        return []
    rows: list[tuple[str, Any]] = []
    spread = f" ± {return_text(returns['std'])} over seeds" if returns.get("std") else ""
    random = f"random policy {return_text(returns.get('random_mean', 0.0))}"
    episodes = counted(returns.get("episodes", 0), "episode")
    rows.append(("return", f"{return_text(returns.get('mean', 0.0))}{spread} ({random}), {episodes}"))
    if "mean_speed" in returns:
        random_speed = (
            f" (random policy {returns['random_mean_speed']:z.2f} m/s)" if "random_mean_speed" in returns else ""
        )
        rows.append(("speed", f"{returns['mean_speed']:z.2f} m/s{random_speed}"))
    return rows


_EXPORT, _EXPORT_ONNX = "--format sb3 -o policy", "--format onnx -o policy.onnx"


_UNCHANGED = ("TEMPLATE_", "REWARD_REJECTED", "JUDGE_REJECTED", "MISSING_", "INVALID_", "UNSUPPORTED_")
"""How the reasons of failures begin that resuming repeats, because nothing has changed."""
_BUDGETS = {
    "EXHAUSTION_REASON_DOLLARS": ("dollars", "dollars"),
    "EXHAUSTION_REASON_TOKENS": ("tokens", "tokens"),
    "EXHAUSTION_REASON_ENV_STEPS": ("env_steps", "steps"),
    "EXHAUSTION_REASON_WALL_TIME": ("wall_time", "minutes"),
}
"""Fields of a budget and options of `sessions resume`, by what is exhausted."""


def _resume(facts: dict[str, Any]) -> list[str]:
    """Return the options of a useful `sessions resume`, with a leading space; empty if resuming would change nothing."""
    session, state = facts["session"], facts["state"]
    spec = session.get("spec", {})
    exhaustion = session.get("exhaustion_reason", "")
    # Without a model, a policy of the user's own is the only round.
    only_policy = spec.get("code", {}).get("policy_source") and spec.get("model", "").startswith("template/")
    if spec.get("model", "").startswith("recorded/"):  # only a server with the recordings can continue it
        return []
    if state == "exhausted" and exhaustion in _BUDGETS:
        kind, option = _BUDGETS[exhaustion]
        used = spec.get("budget", {}).get(kind, 0)
        limit = float(str(used).removesuffix("s")) / (60 if kind == "wall_time" else 1)
        return [f" --budget-{option} {2 * limit:.15g}"]
    if state == "exhausted":
        unproposed = exhaustion == "EXHAUSTION_REASON_NO_PROPOSAL"
        return [] if unproposed or only_policy or spec.get("reward", {}).get("train_only") else [" --iterations 1"]
    if state == "failed":
        reason = session.get("failure", {}).get("reason", "")
        return [] if (only_policy and reason == "NO_POLICY") or reason.startswith(_UNCHANGED) else [""]
    return [""] if state == "cancelled" else []


def _next(facts: dict[str, Any]) -> list[tuple[bool, str]]:
    """Return useful next commands; the flag marks the first."""
    name = short(facts["session"]["name"])
    at = facts["flags"]
    commands = []
    if facts["policy"]:
        commands.append(f"dressage eval {name}{at}")
        if "episodes" not in facts:  # only a network that a training made is exported so
            commands.append(f"dressage export {name} {_EXPORT if has_sb3() else _EXPORT_ONNX}{at}")
        if facts["policy"]["path"] is None:
            commands.insert(0, f"dressage artifacts get {facts['policy']['artifact']} -o policy{at}")
    if facts["video"]:
        commands.append(f"dressage render {name} -o {name}.mp4{at}")
    elif facts["policy"] and facts["session"].get("method") == "program":
        commands.append(f"dressage render {name} -o {name}.gif{at}")
    if _waits_for_approval(facts):
        commands.insert(0, f"dressage sessions approve {name}{at}")
    if facts["state"] in ("interrupted", "pending", "running"):
        commands.append(f"dressage sessions watch {name}{at}")
    commands += [f"dressage sessions resume {name}{more}{at}" for more in _resume(facts)]
    commands.append(f"dressage sessions show {name}{at}")
    return [(index == 0, command) for index, command in enumerate(commands)]
