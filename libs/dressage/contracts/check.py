"""Checks of generated rewards and judges: their report.

The trusted side lints the source and computes the report from what the code returned in a sandbox (`evidence`), so that code
which takes over its process can forge values, as it could without that, but no verdict. A check never raises because of the
checked code: every problem is a `CheckFailure` with rule, line, message and the value seen. Where the process itself ends (an
endless loop, too much memory), `dressage.contracts.host` reports the failure.
"""

from __future__ import annotations

import ast
import faulthandler
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from dressage.contracts.failures import (
    CheckFailure,
    JudgeError,
    PolicyError,
    RewardError,
    Violation,
    reported_error,
    shorten,
)
from dressage.contracts.judge import JudgeResult, validate_result
from dressage.contracts.policy_lint import lint_feedback, lint_policy
from dressage.contracts.probe import Declaration, MalformedReply, limit_duration, probe_reward
from dressage.contracts.source import lint_judge, lint_reward
from dressage.contracts.spaces import Array, Spaces
from dressage.contracts.syntax import MAX_TERMS, literal, parse, reward_style, term_lines
from dressage.envs.cards import EnvironmentCard
from dressage.envs.trajectory import Trajectory

_MAX_TEXT = 1000
REQUEST_TIMEOUT = 60.0

DEFAULT_BUDGET: Mapping[str, float] = {"vectorised": 25.0, "per_step": 250.0}
"""Milliseconds that one call on 1000 rows may take, by style of reward."""
JUDGE_BUDGET = 2000.0
"""Milliseconds of processor time that a judge may take for one trajectory."""


@dataclass(frozen=True)
class CheckReport:
    """Result of a check."""

    ok: bool
    failures: list[CheckFailure] = field(default_factory=list)
    terms: dict[str, str] = field(default_factory=dict)
    """A reward's terms and their meanings."""
    latex: str = ""
    milliseconds_per_step: float = 0.0
    """A reward's time for one call on 1000 rows; a judge's longest time for one trajectory."""
    style: str = ""
    """"vectorised" or "per_step"; "judge", "policy" or "feedback"; empty if the code could not be read."""
    scores: dict[str, list[float]] = field(default_factory=dict)
    """A judge's scores by label of the trajectories."""
    act_microseconds: float = 0.0
    """Median time of one action of a policy."""
    traceable: bool | None = None
    """Whether a reward can be compiled for a device; None: not examined. One that cannot trains on the CPU pool."""
    obstacles: list[CheckFailure] = field(default_factory=list)
    """Why it is not traceable, or was not examined although that was requested. They are no failures of the check."""

    def to_dict(self) -> dict[str, Any]:
        """Return the report as JSON values."""
        return {
            "ok": self.ok,
            "failures": [failure.to_dict() for failure in self.failures],
            "terms": dict(self.terms),
            "latex": self.latex,
            "milliseconds_per_step": self.milliseconds_per_step,
            "style": self.style,
            "scores": {label: list(values) for label, values in self.scores.items()},
            "act_microseconds": self.act_microseconds,
            "traceable": self.traceable,
            "obstacles": [obstacle.to_dict() for obstacle in self.obstacles],
        }

    @classmethod
    def of_failures(cls, *failures: CheckFailure, style: str = "") -> CheckReport:
        """Return a report of failures only."""
        return cls(False, list(failures), style=style)


def violations_report(violations: Sequence[Violation], style: str = "") -> CheckReport:
    """Return the report of what the lint found."""
    return CheckReport.of_failures(*(CheckFailure(v.rule, v.line, v.message) for v in violations), style=style)


Reply = tuple[Mapping[str, Any], float]
"""What a process sent, and the milliseconds until it came: none of it took longer."""
Evidence = Callable[[], Reply]
"""Runs generated code and returns what it returned."""


def assess_reward(
    source: str,
    card: EnvironmentCard,
    trajectories: Sequence[Trajectory],
    evidence: Evidence,
    *,
    budget: Mapping[str, float] | None = None,
    traceable: bool = False,
) -> CheckReport:
    """Return the report on a reward.

    :param evidence: returns that of `evidence.reward_evidence`, and the milliseconds until it came.
    :raises ValueError: it is malformed.
    """
    violations = lint_reward(source, card)
    if violations:
        return violations_report(violations)
    reply, waited = evidence()
    if "failure" in reply:
        return CheckReport.of_failures(reported_error(reply, RewardError).failure)
    declared = _declaration(source, reply)
    failures = list(probe_reward(reply["runs"], declared, card, trajectories))
    milliseconds, allowed = (
        limit_duration(reply["milliseconds"], waited),
        {**DEFAULT_BUDGET, **(budget or {})}[declared.style],
    )
    if milliseconds > allowed:
        message = (
            f"the reward is too slow; it may take {allowed:g} ms per 1000 rows. Use array operations without loops."
        )
        failures.append(CheckFailure("time_budget", 0, message, f"{milliseconds:.1f} ms per 1000 rows"))
    report = CheckReport(not failures, failures, dict(declared.terms), declared.latex, milliseconds, declared.style)
    return _with_device(report, reply["obstacle"]) if traceable and report.ok else report


def _declaration(source: str, reply: Mapping[str, Any]) -> Declaration:
    """Return what a reward declares: a vectorised one in its source, a per-step one perhaps only when it runs."""
    tree = parse(source, owner="reward")
    assert isinstance(tree, ast.Module)  # it passed the lint
    style = reward_style(tree) or ""
    latex, terms = reply.get("latex"), reply.get("terms")
    if style == "vectorised":
        latex, terms = ((literal(tree, name) or ("", 0))[0] for name in ("LATEX", "TERMS"))
    if not isinstance(terms, Mapping) or not 1 <= len(terms) <= MAX_TERMS or not isinstance(latex, str):
        raise MalformedReply("no terms")
    texts = {shorten(name, _MAX_TEXT): shorten(meaning, _MAX_TEXT) for name, meaning in terms.items()}
    if len(texts) != len(terms):
        raise MalformedReply("terms of the same name")
    return Declaration(style, shorten(latex, _MAX_TEXT), texts, term_lines(tree))


def _with_device(report: CheckReport, obstacle: Mapping[str, Any]) -> CheckReport:
    """Add whether the reward can be compiled for a device, as the process found it: one that cannot fails there."""
    if not obstacle:
        return replace(report, traceable=True)
    examined = obstacle.get("examined") is True
    return replace(
        report, traceable=False if examined else None, obstacles=[reported_error(obstacle, RewardError).failure]
    )


def assess_judge(
    source: str,
    card: EnvironmentCard,
    trajectories: Mapping[str, Sequence[Trajectory]],
    evidence: Evidence,
    *,
    nulls: Sequence[str] = (),
    threshold: float = 0.7,
) -> CheckReport:
    """Return the report on a judge; as `assess_reward`.

    :param trajectories: by label, such as "random".
    :param nulls: labels of null controls, whose trajectories must score below ``threshold``.
    """
    violations = lint_judge(source, card)
    if violations:
        return violations_report(violations, "judge")
    reply, waited = evidence()
    scores: dict[str, list[float]] = {}
    slowest, judging = 0.0, ""
    failures: list[CheckFailure] = []
    try:
        criteria: set[str] | None = None
        for label, group in trajectories.items():
            for number, trajectory in enumerate(group):
                judging = f"on a {label.replace('_', ' ')} episode of {trajectory.num_steps} steps"
                result, milliseconds = _judgment(reply, label, number, waited)
                slowest = max(slowest, milliseconds)
                criteria = criteria or set(result.criteria)
                if set(result.criteria) != criteria:
                    message = "the criteria must have the same names for every trajectory."
                    raise JudgeError("criteria", message, seen=str(sorted(result.criteria)))
                scores.setdefault(label, []).append(result.score)
    except JudgeError as error:
        seen = "; ".join(part for part in (error.failure.seen, judging) if part)
        failures.append(replace(error.failure, seen=seen))
    else:
        failures += _null_control_failures(scores, nulls, threshold)
        if slowest > JUDGE_BUDGET:
            limit = f"{JUDGE_BUDGET:g} ms of processor time a trajectory"
            message = f"the judge is too slow; it may take {limit}. Use array operations."
            failures.append(CheckFailure("time_budget", 0, message, f"{slowest:.0f} ms"))
    return CheckReport(not failures, failures, {}, "", slowest, "judge", scores)


def _judgment(reply: Mapping[str, Any], label: str, number: int, waited: float) -> tuple[JudgeResult, float]:
    """Return a judge's result for a trajectory, and the milliseconds that it took.

    :raises JudgeError: it failed on this one, or its results break the contract.
    """
    results = reply["results"][label]
    if number >= len(results):
        if "failure" not in reply:
            raise MalformedReply("fewer results than trajectories")
        raise reported_error(reply, JudgeError)
    first, fresh, milliseconds = results[number]
    result = validate_result(first)
    if validate_result(fresh) != result:
        raise JudgeError("deterministic", "the same trajectory gave another result after others; keep no state.")
    return result, limit_duration(milliseconds, waited)


def _null_control_failures(
    scores: Mapping[str, list[float]], nulls: Sequence[str], threshold: float
) -> list[CheckFailure]:
    return [
        CheckFailure(
            "null-control",
            0,
            f"the {label} trajectory does not show the behaviour, so it must score below {threshold:g}; "
            "make the criteria demand the behaviour itself.",
            f"score {max(scores[label]):.3f}",
        )
        for label in nulls
        if label in scores and max(scores[label]) >= threshold
    ]


def dump_stack_after(seconds: float | None) -> None:
    """Write the stack to standard error after ``seconds``, to report the line of an endless loop, and again after as long: on
    an overloaded machine the code may begin late."""
    if seconds is not None:
        faulthandler.dump_traceback_later(seconds, repeat=True)


def assess_policy(
    source: str, spaces: Spaces, episodes: Sequence[Array], evidence: Evidence, *, act_seconds: float
) -> CheckReport:
    """Return the report on a policy, from the actions that it chose; as `assess_reward`.

    :param episodes: (T+1, D) observations of each episode, at least one.
    :param act_seconds: limit of one action.
    """
    violations = lint_policy(source)
    if violations:
        return violations_report(violations, "policy")
    reply, waited = evidence()
    if "failure" in reply:
        return CheckReport.of_failures(reported_error(reply, PolicyError).failure, style="policy")
    actions, seconds = reply["actions"], reply["seconds"]
    if not isinstance(seconds, np.ndarray) or seconds.dtype != np.float64 or not 1 <= len(actions) <= len(episodes):
        raise ValueError("no actions")
    count = sum(len(spaces.check_reply(part, len(part))) for part in actions)
    times = [limit_duration(value, waited / 1e3) for value in seconds.ravel().tolist()]
    if len(times) != count or not times:
        raise ValueError(f"{len(times)} times of {count} actions")
    failures = []
    if max(times) > act_seconds:
        message = f"an action is too slow; it may take {act_seconds:g} s. Compute less in act(), or once in reset()."
        failures.append(CheckFailure("time_budget", 0, message, f"{max(times):.2f} s"))
    return CheckReport(not failures, failures, style="policy", act_microseconds=statistics.median(times) * 1e6)


def assess_feedback(source: str, evidence: Evidence) -> CheckReport:
    """Return the report on a feedback class; as `assess_reward`."""
    violations = lint_feedback(source)
    if violations:
        return violations_report(violations, "feedback")
    reply, _ = evidence()
    if "failure" in reply:
        return CheckReport.of_failures(reported_error(reply, PolicyError).failure, style="feedback")
    if not all(isinstance(text, str) and text.strip() for text in reply["texts"]):
        raise ValueError("no texts")
    return CheckReport(True, style="feedback")
