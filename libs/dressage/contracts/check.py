"""Sandbox targets that check generated rewards and judges, and the report they send.

A check never raises because of the checked code: every problem is a `CheckFailure` with rule, line, message and the value
seen. Where the process itself ends (an endless loop, too much memory), `dressage.contracts.host` reports the failure.
"""

from __future__ import annotations

import faulthandler
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from dressage.contracts.failures import MAX_LINE, CheckFailure, GeneratedCodeError, JudgeError, Violation, shorten
from dressage.contracts.source import lint_judge, lint_reward
from dressage.envs.cards import EnvironmentCard
from dressage.envs.trajectory import Trajectory
from dressage.sandbox.pipe import MALFORMED, Channel

if TYPE_CHECKING:
    from dressage.contracts.reward import RewardModule

_MAX_FAILURES = 50
_MAX_SCORES = 10_000
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
    def from_dict(cls, data: Mapping[str, Any]) -> CheckReport:
        """Return the report of a dict that a sandbox sent: types are enforced and texts cut.

        :raises ValueError: the dict is malformed.
        """
        try:
            failures, obstacles = (_failures(data[name]) for name in ("failures", "obstacles"))
            return cls(
                ok=bool(data["ok"]) and not failures,
                failures=failures,
                terms={_text(name): _text(meaning) for name, meaning in list(data["terms"].items())[:_MAX_FAILURES]},
                latex=_text(data["latex"]),
                milliseconds_per_step=float(data["milliseconds_per_step"]),
                style=_text(data["style"]),
                scores={
                    _text(label): [float(v) for v in values[:_MAX_SCORES]]
                    for label, values in list(data["scores"].items())[:_MAX_FAILURES]
                },
                act_microseconds=float(data["act_microseconds"]),
                traceable=None if data["traceable"] is None else bool(data["traceable"]) and not obstacles,
                obstacles=obstacles,
            )
        except MALFORMED as error:
            raise ValueError(f"the sandbox sent an invalid report: {error}") from error

    @classmethod
    def of_failures(cls, *failures: CheckFailure, style: str = "") -> CheckReport:
        """Return a report of failures only."""
        return cls(False, list(failures), style=style)


def _failures(items: Any) -> list[CheckFailure]:
    return [
        CheckFailure(_text(f["rule"]), min(max(0, int(f["line"])), MAX_LINE), _text(f["message"]), _text(f["seen"]))
        for f in items[:_MAX_FAILURES]
    ]


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"expected a string, got {type(value).__name__}")
    return shorten(value, _MAX_TEXT)


def violations_report(violations: Sequence[Violation], style: str = "") -> CheckReport:
    """Return the report of what the lint found."""
    return CheckReport.of_failures(*(CheckFailure(v.rule, v.line, v.message) for v in violations), style=style)


def examine_reward(
    source: str,
    card: EnvironmentCard,
    trajectories: Sequence[Trajectory],
    *,
    budget: Mapping[str, float] | None = None,
    traceable: bool = False,
) -> CheckReport:
    """Check a reward: lint, load, and run it on recorded transitions. Call it only inside a sandbox.

    :param traceable: also examine whether a reward that passes can be compiled for a device (imports JAX).
    """
    violations = lint_reward(source, card)
    if violations:
        return violations_report(violations)
    # Imported late, so that a reward that lint refuses does not cost the import.
    from dressage.contracts.probe import probe_reward
    from dressage.contracts.reward import load_reward

    try:
        module = load_reward(source, card)
        allowed = {**DEFAULT_BUDGET, **(budget or {})}
        failures, milliseconds = probe_reward(module, card, trajectories, budget=allowed)
    except GeneratedCodeError as error:
        return CheckReport.of_failures(error.failure)
    report = CheckReport(not failures, failures, dict(module.terms), module.latex, milliseconds, module.style)
    return _trace_for_device(report, module, card) if traceable and report.ok else report


def _trace_for_device(report: CheckReport, module: RewardModule, card: EnvironmentCard) -> CheckReport:
    from dressage.contracts.device import RULE, trace_reward

    try:
        obstacle = trace_reward(module, card)
    except ImportError as error:
        message = (
            "it is not known whether the reward can be compiled for a device: JAX is not installed where it is checked"
        )
        return replace(report, obstacles=[CheckFailure(RULE, 0, message, str(error))])
    return replace(report, traceable=obstacle is None, obstacles=[] if obstacle is None else [obstacle])


def examine_judge(
    source: str,
    card: EnvironmentCard,
    trajectories: Mapping[str, Sequence[Trajectory]],
    *,
    nulls: Sequence[str] = (),
    threshold: float = 0.7,
) -> CheckReport:
    """Check a judge: lint, load, and run it on recorded trajectories. Call it only inside a sandbox.

    :param trajectories: by label, such as "random".
    :param nulls: labels of null controls, whose trajectories must score below ``threshold``.
    """
    violations = lint_judge(source, card)
    if violations:
        return violations_report(violations, "judge")
    from dressage.contracts.judge import load_judge, run_judge

    failures: list[CheckFailure] = []
    scores: dict[str, list[float]] = {}
    slowest, judging = 0.0, ""
    try:
        module = load_judge(source)
        criteria: set[str] | None = None
        for label, group in trajectories.items():
            for trajectory in group:
                judging = f"on a {label.replace('_', ' ')} episode of {trajectory.num_steps} steps"
                begin = time.thread_time()  # processor time: another program's load does not make a judge slow
                result = run_judge(module, trajectory)
                slowest = max(slowest, (time.thread_time() - begin) * 1e3)
                # Twice: a judgment that is repeated after a crash must have the same score.
                if run_judge(module, trajectory) != result:
                    raise JudgeError("deterministic", "the same trajectory gave another result; keep no state.")
                # Judgments of several rollouts average their criteria by name.
                criteria = criteria or set(result.criteria)
                if set(result.criteria) != criteria:
                    message = "the criteria must have the same names for every trajectory."
                    raise JudgeError("criteria", message, line=module.line, seen=str(sorted(result.criteria)))
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


def check_reward(channel: Channel) -> None:
    """Sandbox target: check the reward of one request and answer with its report."""
    from dressage.contracts.messages import unpack_trajectory

    request = channel.recv(timeout=REQUEST_TIMEOUT)
    dump_stack_after(request["stack_after"])
    card = EnvironmentCard.from_dict(request["card"])
    trajectories = [unpack_trajectory(item) for item in request["trajectories"]]
    report = examine_reward(
        request["source"], card, trajectories, budget=request["budget"], traceable=request["traceable"]
    )
    channel.send({"report": report.to_dict()})


def check_judge(channel: Channel) -> None:
    """Sandbox target: check the judge of one request and answer with its report."""
    from dressage.contracts.messages import unpack_trajectory

    request = channel.recv(timeout=REQUEST_TIMEOUT)
    dump_stack_after(request["stack_after"])
    card = EnvironmentCard.from_dict(request["card"])
    groups = {label: [unpack_trajectory(item) for item in items] for label, items in request["trajectories"].items()}
    report = examine_judge(
        request["source"], card, groups, nulls=request["nulls"], threshold=float(request["threshold"])
    )
    channel.send({"report": report.to_dict()})
