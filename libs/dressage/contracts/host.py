"""Run generated code in a sandbox, from the trusted side, and return a report, results or a typed failure.

Services may call everything here: the generated source is data, and replies are validated. These functions block for
up to the wall-clock limit; call them in a thread from asynchronous code.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from dressage.contracts.check import (
    DEFAULT_BUDGET,
    CheckReport,
    Evidence,
    Reply,
    assess_feedback,
    assess_judge,
    assess_policy,
    assess_reward,
)
from dressage.contracts.execute import line_of_stack
from dressage.contracts.failures import CheckFailure, GeneratedCodeError, JudgeError, RewardError, reported_error
from dressage.contracts.hidden import HIDDEN
from dressage.contracts.judge import JudgeResult, validate_result
from dressage.contracts.messages import pack_trajectory
from dressage.contracts.spaces import Spaces
from dressage.contracts.syntax import MAX_TERMS
from dressage.envs.cards import EnvironmentCard
from dressage.envs.trajectory import Trajectory
from dressage.errors import Internal, InvalidArgument, ResourceExhausted
from dressage.sandbox import Limits, SandboxFailure, run
from dressage.sandbox.heartbeat import CEILING_SECONDS
from dressage.sandbox.limits import MIB, STARVED_FACTOR
from dressage.sandbox.output import excerpt, last_line
from dressage.sandbox.pipe import MALFORMED, MAX_BYTES, MAX_JSON_BYTES
from dressage.sandbox.scratch import scratch_folder

CHECK_LIMITS = Limits(
    memory_bytes=1 << 30,
    wall_seconds=30.0,
    starved_seconds=30.0 * STARVED_FACTOR,
    cpu_seconds=60,
    file_bytes=1 << 20,
    open_files=64,
    processes=64,
    call_seconds=CEILING_SECONDS,
)
"""Limits for checking, scoring and judging, none of which needs more than numpy. With many or long episodes the deadline is
later; a call of the code that does not return ends the process within a minute all the same."""
TRACE_MEMORY = 4 << 30
"""Memory of a check that imports JAX, which reserves address space."""
_BATCH_BYTES = 64 * MIB
"""Size of the trajectories that one sandbox scores, padded to the longest of them. A batch has at least one."""
_MAX_ARRAY_BYTES = MAX_BYTES - MAX_JSON_BYTES
"""Bytes of arrays that one message can always hold."""
_MAX_REPLY_BYTES = 32 * MIB
"""Bytes of what a sandbox sends back: values of terms, scores, actions."""
_MEMORY_FACTOR = 8
"""Memory per byte of trajectories: the message, its decoded parts, the columns as float64 in two orders, the terms."""
_BUDGET_FACTOR = 4.0
"""Scoring gets this multiple of the check's budget: the check may have run on a faster or less busy machine."""

_ATTEMPTS = 3
"""Of a call whose process something else ends, such as the kernel when another program takes the memory. After that, it is
attributed to the code."""

_RULES = {"timeout": "time_budget", "stalled": "time_budget", "memory": "memory_budget"}
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
    traceable: bool = False,
    allow_unsandboxed: bool = False,
) -> CheckReport:
    """Check a reward in a sandbox.

    :param trajectories: recorded episodes to run it on, such as all of `load_check_trajectories`.
    :param scratch: existing folder, below which a temporary one is made for the process.
    :param limits: bounds; ``wall_seconds`` is the deadline of the whole check.
    :param budget: milliseconds per call on 1000 rows, by style; see `check.DEFAULT_BUDGET`.
    :param traceable: also examine whether a reward that passes can be compiled for a device. JAX is imported for that, with
        more memory than ``limits`` has.
    :returns: the report; whatever the code does is a failure in it, never an exception.
    :raises FailedPrecondition: no sandbox here, and ``allow_unsandboxed`` is not set.
    :raises DeadlineExceeded: the machine is overloaded (``MACHINE_OVERLOADED``); the same check may succeed later.
    """
    request = {
        "source": source,
        "card": card.to_dict(),
        "trajectories": [pack_trajectory(trajectory) for trajectory in trajectories],
        "traceable": traceable,
    }
    if traceable:
        limits = replace(limits, memory_bytes=max(limits.memory_bytes, TRACE_MEMORY))
    evidence = _evidence("evidence:check_reward", request, scratch, limits, allow_unsandboxed)
    return _report(
        lambda: assess_reward(source, card, trajectories, evidence, budget=budget, traceable=traceable), source
    )


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
        "trajectories": {label: [pack_trajectory(t) for t in group] for label, group in trajectories.items()},
    }
    evidence = _evidence("evidence:check_judge", request, scratch, limits, allow_unsandboxed)
    return _report(lambda: assess_judge(source, card, trajectories, evidence, nulls=nulls, threshold=threshold), source)


def check_policy_in_sandbox(
    source: str,
    card: EnvironmentCard,
    trajectories: Sequence[Trajectory],
    *,
    scratch: Path,
    limits: Limits = CHECK_LIMITS,
    act_seconds: float = 1.0,
    allow_unsandboxed: bool = False,
) -> CheckReport:
    """Check a code policy in a sandbox; as `check_reward_in_sandbox`.

    :param trajectories: recorded episodes whose observations it is given; where there are none, it is given zeros.
    :param act_seconds: limit of one action.
    """
    request, spaces = _sample(source, card, trajectories), Spaces.of(card)
    evidence = _evidence("policy_check:check_policy", request, scratch, limits, allow_unsandboxed)
    return _report(
        lambda: assess_policy(source, spaces, request["episodes"], evidence, act_seconds=act_seconds), source
    )


def check_feedback_in_sandbox(
    source: str,
    card: EnvironmentCard,
    trajectories: Sequence[Trajectory],
    *,
    scratch: Path,
    limits: Limits = CHECK_LIMITS,
    allow_unsandboxed: bool = False,
) -> CheckReport:
    """Check a feedback class in a sandbox; as `check_policy_in_sandbox`."""
    request = _sample(source, card, trajectories)
    evidence = _evidence("policy_check:check_feedback", request, scratch, limits, allow_unsandboxed)
    return _report(lambda: assess_feedback(source, evidence), source)


def _sample(source: str, card: EnvironmentCard, trajectories: Sequence[Trajectory]) -> dict[str, Any]:
    """Return the part of a request with what a policy observes."""
    observations = [
        np.asarray(each.fields["observation"], np.float64) for each in trajectories if "observation" in each.fields
    ]
    suitable = [
        rows for rows in observations if rows.ndim == 2 and rows.shape[1] == card.observation_size and len(rows) > 1
    ]
    # As one-hot rows, zeros are the discrete observation 0.
    episodes = suitable or [np.zeros((2, card.observation_size))]
    return {"source": source, "spaces": Spaces.of(card).to_dict(), "episodes": episodes}


def run_judge_in_sandbox(
    source: str,
    trajectories: Sequence[Trajectory],
    *,
    scratch: Path,
    limits: Limits = CHECK_LIMITS,
    allow_unsandboxed: bool = False,
) -> list[JudgeResult]:
    """Return the result of a checked judge for each trajectory.

    :raises JudgeError: the judge failed on one of them, or was ended (rules as in a report).
    """
    request = {"source": source, "trajectories": [pack_trajectory(trajectory) for trajectory in trajectories]}
    reply = _apply("judge", request, scratch, limits, allow_unsandboxed, JudgeError)
    results = [validate_result(item) for item in _list_of(reply, "results")]
    if len(results) != len(trajectories):
        raise JudgeError("sandbox", "the number of results differs from the number of trajectories.")
    return results


def score_in_sandbox(
    source: str,
    card: EnvironmentCard,
    trajectories: Sequence[Trajectory],
    *,
    scratch: Path,
    limits: Limits | None = None,
    allow_unsandboxed: bool = False,
) -> list[dict[str, Any]]:
    """Return each trajectory's return under a reward: ``{"return": float, "terms": {name: float}}``, all finite.

    :param limits: limits of one sandbox for all trajectories. None: the trajectories are scored in batches, one sandbox
        after another, with the time and memory that a reward which passed its check may need for them.
    :raises RewardError: the reward failed on one of them, or was ended (rules as in a report). ``row`` is the index of the
        trajectory, where the failure concerns one trajectory.
    :raises ResourceExhausted: a trajectory, or all of them if ``limits`` is given, exceeds the size of a message.
    """
    if limits is not None:
        return _score(source, card, trajectories, 0, scratch, limits, allow_unsandboxed)
    scores: list[dict[str, Any]] = []
    for batch in _batches(trajectories):
        bounds = _scoring_limits(batch)
        scores += _score(source, card, batch, len(scores), scratch, bounds, allow_unsandboxed)
    return scores


def _batches(trajectories: Sequence[Trajectory]) -> Iterator[Sequence[Trajectory]]:
    first, longest = 0, 0
    for place, trajectory in enumerate(trajectories):
        longest = max(longest, _bytes_of(trajectory))
        if place > first and longest * (place + 1 - first) > _BATCH_BYTES:
            yield trajectories[first:place]
            first, longest = place, _bytes_of(trajectory)
    if first < len(trajectories):
        yield trajectories[first:]


def _bytes_of(trajectory: Trajectory) -> int:
    own = (trajectory.action, trajectory.reward, trajectory.qpos, trajectory.qvel)
    return sum(int(array.nbytes) for array in (*trajectory.fields.values(), *own))


def _scoring_limits(batch: Sequence[Trajectory]) -> Limits:
    """Return `CHECK_LIMITS` plus the time that a reward within its budget may take for these trajectories.

    A vectorised reward is called for each step, a per-step reward for each row of each step.
    """
    calls, rows = max(trajectory.num_steps for trajectory in batch), sum(trajectory.num_steps for trajectory in batch)
    milliseconds = DEFAULT_BUDGET["vectorised"] * calls + DEFAULT_BUDGET["per_step"] * rows / 1000.0
    wall = (CHECK_LIMITS.wall_seconds or 0.0) + _BUDGET_FACTOR * milliseconds / 1000.0
    size = max(map(_bytes_of, batch)) * len(batch)
    memory = max(CHECK_LIMITS.memory_bytes, _MEMORY_FACTOR * size)
    return replace(
        CHECK_LIMITS,
        memory_bytes=memory,
        wall_seconds=wall,
        starved_seconds=STARVED_FACTOR * wall,
        cpu_seconds=2 * math.ceil(wall),
    )


def _score(
    source: str,
    card: EnvironmentCard,
    trajectories: Sequence[Trajectory],
    first: int,
    scratch: Path,
    limits: Limits,
    allow_unsandboxed: bool,
) -> list[dict[str, Any]]:
    """Score trajectories in one sandbox.

    :param first: index of the first of them, for the message of a failure.
    """
    size = sum(map(_bytes_of, trajectories))
    if size > _MAX_ARRAY_BYTES:
        steps = max(trajectory.num_steps for trajectory in trajectories)
        size_text = f"{size / MIB:.0f} MiB of episodes of up to {steps} steps"
        message = (
            f"{size_text} exceed the limit of {_MAX_ARRAY_BYTES / MIB:.0f} MiB for scoring. Lower max_episode_steps."
        )
        raise ResourceExhausted(message, reason="EPISODE_TOO_LONG")
    packed = [pack_trajectory(trajectory) for trajectory in trajectories]
    request = {"source": source, "card": card.to_dict(), "trajectories": packed}
    try:
        reply = _apply("score", request, scratch, limits, allow_unsandboxed, RewardError)
    except RewardError as error:
        if error.row is None:
            raise
        seen = f"{error.seen} of episode {first + error.row}"
        message, row = error.failure.message, first + error.row
        raise RewardError(error.rule, message, line=error.line, seen=seen, term=error.term, row=row) from error
    scores = _scores_of(reply)
    if len(scores) != len(trajectories):
        raise RewardError("sandbox", "the number of scores differs from the number of trajectories.")
    return scores


def _scores_of(reply: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the scores in a reply. A return is computed here, as the sum of its terms.

    :raises RewardError: one of them is malformed, or not finite.
    """
    scores: list[dict[str, Any]] = []
    for item in _list_of(reply, "scores"):
        try:
            terms = {excerpt(name): float(value) for name, value in item["terms"].items()}
        except MALFORMED as error:
            seen = excerpt(str(error))
            raise RewardError("sandbox", "the sandbox sent malformed scores.", seen=seen) from error
        with np.errstate(all="ignore"):
            total = float(np.sum(np.array(list(terms.values()))))
        if len(terms) > MAX_TERMS or len(terms) != len(item["terms"]):
            raise RewardError("sandbox", "the sandbox sent malformed scores.", seen=f"{len(item['terms'])} terms")
        for name, value in {**terms, "the return": total}.items():
            if not math.isfinite(value):
                message = "an episode's terms and their sum must be finite; keep the terms small."
                raise RewardError("finite", message, seen=f"{name}: {value}", term="" if name not in terms else name)
        scores.append({"return": total, "terms": terms})
    return scores


def failure_of(error: SandboxFailure, source: str | None = None) -> CheckFailure:
    """Return the check failure for the end of a sandboxed process.

    The line is the one that ran shortly before the time limit, 0 if it is unknown or none of ``source``.
    """
    rule, line = _RULES.get(error.kind, "sandbox"), line_of_stack(error.stderr_tail)
    if source is not None and line > len(source.splitlines()):
        line = 0
    last = last_line(error.stderr_tail) if error.kind == "error" else ""
    return CheckFailure(rule, line, _REMEDIES[rule], excerpt(f"{error.message}: {last}" if last else error.message))


def _run(
    target: str, request: dict[str, Any], scratch: Path, limits: Limits, allow_unsandboxed: bool
) -> dict[str, Any]:
    seconds = limits.wall_seconds
    # Earlier than the deadline by more than a slow start-up, because this timer starts when the request arrives.
    request = {**request, "stack_after": None if seconds is None else max(seconds / 2, seconds - 6.0)}
    for attempt in range(1, _ATTEMPTS + 1):
        with scratch_folder(scratch, prefix="check-") as folder:
            try:
                return run(
                    target,
                    request,
                    limits=limits,
                    scratch=folder,
                    hidden=HIDDEN,
                    max_reply_bytes=_MAX_REPLY_BYTES,
                    allow_unsandboxed=allow_unsandboxed,
                )
            except SandboxFailure as error:
                if not error.outside or attempt == _ATTEMPTS:
                    raise
    raise AssertionError


def _evidence(name: str, request: dict[str, Any], scratch: Path, limits: Limits, allow_unsandboxed: bool) -> Evidence:
    """Return what runs generated code for its check."""

    def run_in_sandbox() -> Reply:
        begin = time.monotonic()
        reply = _run(f"dressage.contracts.{name}", request, scratch, limits, allow_unsandboxed)
        return reply, (time.monotonic() - begin) * 1e3

    return run_in_sandbox


def _report(assess: Callable[[], CheckReport], source: str) -> CheckReport:
    """Return the report, also on code that ended its process or sent what cannot be read."""
    try:
        return assess()
    except SandboxFailure as error:
        _raise_if_internal(error)
        return CheckReport.of_failures(failure_of(error, source))
    except (*MALFORMED, InvalidArgument) as error:
        return CheckReport.of_failures(CheckFailure("sandbox", 0, _REMEDIES["sandbox"], excerpt(str(error))))


def _apply(
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
        _raise_if_internal(error)
        failure = failure_of(error, request["source"])
        raise kind(failure.rule, failure.message, line=failure.line, seen=failure.seen) from error
    if "failure" in reply:
        raise reported_error(reply, kind, rows=len(request["trajectories"]))
    return reply


def _list_of(reply: Mapping[str, Any], name: str) -> list[Any]:
    value = reply.get(name)
    return value if isinstance(value, list) else []


def _raise_if_internal(error: SandboxFailure) -> None:
    """Raise `Internal` for a process that failed before it ran generated code. What it wrote later proves nothing."""
    if error.kind == "error" and not error.entered:
        raise Internal(f"the check itself failed: {error.message}\n{error.stderr_tail[-2000:]}") from error
