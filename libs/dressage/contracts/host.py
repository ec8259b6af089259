"""The trusted side: run generated code in a sandbox and get a report, results, or a clear failure back.

Everything here is safe to call from a service: the generated source is data, and what comes back is validated. These
functions block for up to the wall-clock limit; call them in a thread from asynchronous code.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dressage.contracts.check import CheckReport
from dressage.contracts.execute import FILENAME
from dressage.contracts.faults import CheckFailure, GeneratedCodeError, JudgeError, RewardError
from dressage.contracts.judge import JudgeResult, validate_result
from dressage.contracts.messages import pack_trajectory
from dressage.envs.cards import EnvironmentCard
from dressage.envs.trajectory import Trajectory
from dressage.errors import Internal
from dressage.sandbox import Limits, SandboxFailure, run

CHECK_LIMITS = Limits(
    memory_bytes=1 << 30, wall_seconds=30.0, cpu_seconds=60, file_bytes=1 << 20, open_files=64, processes=64
)
"""Bounds for checking, scoring and judging, none of which needs more than numpy."""

_STACK_LINE = re.compile(re.escape(f'File "{FILENAME}", line ') + r"(\d+)")
_RULES = {"timeout": "time_budget", "memory": "memory_budget"}
_REMEDIES = {
    "time_budget": "the code did not end in time; remove endless or long loops.",
    "memory_budget": "the code asked for more memory than it may use; work on the arrays given, without large ones of its own.",
    "sandbox": "the code was ended for what it did in the sandbox; use the arguments and np only.",
}


def check_reward_in_sandbox(
    source: str,
    card: EnvironmentCard,
    trajectories: Sequence[Trajectory],
    *,
    scratch: Path,
    limits: Limits = CHECK_LIMITS,
    budget: Mapping[str, float] | None = None,
    jax: bool = False,
    allow_unsandboxed: bool = False,
) -> CheckReport:
    """Check a reward in a sandbox.

    :param trajectories: recorded episodes to run it on, such as all of `load_check_trajectories`.
    :param scratch: existing folder, below which a temporary one is made for the process.
    :param limits: bounds; ``wall_seconds`` is the deadline of the whole check.
    :param budget: milliseconds per call on 1000 rows, by style; see `check.DEFAULT_BUDGET`.
    :param jax: also run a vectorised reward on jax.numpy; give it 2 GiB and a longer deadline.
    :returns: the report; whatever the code does is a failure in it, never an exception.
    :raises FailedPrecondition: no sandbox here, and ``allow_unsandboxed`` is not set.
    """
    request = {
        "source": source,
        "card": card.to_dict(),
        "trajectories": [pack_trajectory(trajectory) for trajectory in trajectories],
        "budget": dict(budget or {}),
        "jax": jax,
    }
    return _checked("check_reward", request, scratch, limits, allow_unsandboxed)


def check_judge_in_sandbox(
    source: str,
    card: EnvironmentCard,
    trajectories: Mapping[str, Sequence[Trajectory]],
    *,
    scratch: Path,
    limits: Limits = CHECK_LIMITS,
    nulls: Sequence[str] = (),
    threshold: float = 0.7,
    allow_unsandboxed: bool = False,
) -> CheckReport:
    """Check a judge in a sandbox; as `check_reward_in_sandbox`.

    :param trajectories: by label; the report's ``scores`` have the same labels.
    :param nulls: labels whose trajectories must score below ``threshold``.
    """
    request = {
        "source": source,
        "card": card.to_dict(),
        "trajectories": {label: [pack_trajectory(t) for t in group] for label, group in trajectories.items()},
        "nulls": list(nulls),
        "threshold": threshold,
    }
    return _checked("check_judge", request, scratch, limits, allow_unsandboxed)


def run_judge_in_sandbox(
    source: str,
    trajectories: Sequence[Trajectory],
    *,
    scratch: Path,
    limits: Limits = CHECK_LIMITS,
    allow_unsandboxed: bool = False,
) -> list[JudgeResult]:
    """Return a checked judge's verdict on each trajectory.

    :raises JudgeError: the judge failed on one of them, or was ended (rules as in a report).
    """
    request = {"source": source, "trajectories": [pack_trajectory(trajectory) for trajectory in trajectories]}
    reply = _applied("judge", request, scratch, limits, allow_unsandboxed, JudgeError)
    results = [validate_result(item) for item in _list_of(reply, "results")]
    if len(results) != len(trajectories):
        raise JudgeError("sandbox", "the sandbox sent another number of results than trajectories.")
    return results


def score_in_sandbox(
    source: str,
    card: EnvironmentCard,
    trajectories: Sequence[Trajectory],
    *,
    scratch: Path,
    limits: Limits = CHECK_LIMITS,
    allow_unsandboxed: bool = False,
) -> list[dict[str, Any]]:
    """Return each trajectory's own return by a reward: ``{"return": float, "terms": {name: float}}``.

    :raises RewardError: the reward failed on one of them, or was ended (rules as in a report).
    """
    packed = [pack_trajectory(trajectory) for trajectory in trajectories]
    request = {"source": source, "card": card.to_dict(), "trajectories": packed}
    reply = _applied("score", request, scratch, limits, allow_unsandboxed, RewardError)
    try:
        scores = [
            {"return": float(item["return"]), "terms": {str(k): float(v) for k, v in item["terms"].items()}}
            for item in _list_of(reply, "scores")
        ]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise RewardError("sandbox", "the sandbox sent malformed scores.", seen=str(error)) from error
    if len(scores) != len(trajectories):
        raise RewardError("sandbox", "the sandbox sent another number of scores than trajectories.")
    return scores


def failure_of(error: SandboxFailure) -> CheckFailure:
    """Return the check failure that the end of a sandboxed process amounts to.

    The line is where the code was when the time was nearly up, if it got that far.
    """
    rule = _RULES.get(error.kind, "sandbox")
    found = _STACK_LINE.search(error.stderr_tail)
    return CheckFailure(rule, int(found.group(1)) if found else 0, _REMEDIES[rule], error.message)


def _run(
    target: str, request: dict[str, Any], scratch: Path, limits: Limits, allow_unsandboxed: bool
) -> dict[str, Any]:
    seconds = limits.wall_seconds
    # Before the end, by more than a slow start-up: the clock of the stack starts when the request arrives.
    request = {**request, "stack_after": None if seconds is None else max(seconds / 2, seconds - 6.0)}
    with tempfile.TemporaryDirectory(dir=scratch, prefix="check-") as folder:
        return run(target, request, limits=limits, scratch=Path(folder), allow_unsandboxed=allow_unsandboxed)


def _checked(name: str, request: dict[str, Any], scratch: Path, limits: Limits, allow_unsandboxed: bool) -> CheckReport:
    try:
        reply = _run(f"dressage.contracts.check:{name}", request, scratch, limits, allow_unsandboxed)
        return CheckReport.from_dict(reply["report"])
    except SandboxFailure as error:
        _raise_if_ours(error)
        return CheckReport.failed(failure_of(error))
    except (KeyError, ValueError) as error:
        return CheckReport.failed(CheckFailure("sandbox", 0, _REMEDIES["sandbox"], str(error)))


def _applied(
    name: str,
    request: dict[str, Any],
    scratch: Path,
    limits: Limits,
    allow_unsandboxed: bool,
    kind: type[GeneratedCodeError],
) -> dict[str, Any]:
    try:
        reply = _run(f"dressage.contracts.score:{name}", request, scratch, limits, allow_unsandboxed)
    except SandboxFailure as error:
        _raise_if_ours(error)
        failure = failure_of(error)
        raise kind(failure.rule, failure.message, line=failure.line, seen=failure.seen) from error
    if "failure" in reply:
        try:
            failure = CheckFailure(**reply["failure"])
        except TypeError as error:
            raise kind("sandbox", "the sandbox sent a malformed failure.", seen=str(error)) from error
        raise kind(str(failure.rule), str(failure.message), line=int(failure.line), seen=str(failure.seen))
    return reply


def _list_of(reply: Mapping[str, Any], name: str) -> list[Any]:
    value = reply.get(name)
    return value if isinstance(value, list) else []


def _raise_if_ours(error: SandboxFailure) -> None:
    """An exception that passed through none of the generated code is our own fault, not the author's."""
    if error.kind == "error" and "Traceback" in error.stderr_tail and FILENAME not in error.stderr_tail:
        raise Internal(f"the check itself failed: {error.message}\n{error.stderr_tail[-2000:]}") from error
