"""Checks of generated code and verdicts on rollouts: what the servicer calls."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import structlog
from dressage.artifacts import ArtifactStore
from dressage.contracts import CheckReport, JudgeResult, lint_judge
from dressage.envs.cards import load_card
from dressage.envs.trajectory import Trajectory
from dressage.errors import FailedPrecondition, InvalidArgument, NotFound

from dressage_judge.controls import control_trajectories, null_failures, require_controls
from dressage_judge.sandboxed import JudgeFailure, SandboxRunner

_SHOWN, _NAMED = 6, 50
_AS_JUDGE = """

def judge(trajectory, np):
    return {"score": 0.0, "criteria": {"measured": 0.0}, "evidence": check(trajectory, np)}
"""

DEFAULT_THRESHOLD = 0.7
"""Pass threshold where a request has none; a session's default, too."""


@dataclass(frozen=True)
class CheckedCode:
    """A check's report, and the highest score that a judge gave each kind of control."""

    report: CheckReport
    control_scores: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class JudgedRollout:
    """The verdict of a judge on one rollout.

    :param reversed_score: score of the rollout played backwards, if it was asked for.
    """

    rollout: str
    result: JudgeResult
    reversed_score: float | None = None


class CodeJudge:
    """Checks generated rewards and judges, and judges rollouts of an artifact store."""

    def __init__(self, *, store: ArtifactStore, runner: SandboxRunner) -> None:
        self._store = store
        self._runner = runner
        self._log = structlog.get_logger("dressage.judge")

    async def check_reward(self, source: str, environment: str, *, timeout: float | None) -> CheckedCode:
        """Check a reward on the shipped episodes.

        :raises NotFound: for an unknown environment.
        """
        card = load_card(environment)
        shipped = await asyncio.to_thread(control_trajectories, environment)
        episodes = [episode for group in shipped.values() for episode in group]
        report = await self._runner.check_reward(source, card, episodes, timeout=timeout)
        self._log.info("checked", subject="reward", ok=report.ok, rules=[failure.rule for failure in report.failures])
        return CheckedCode(report)

    async def check_judge(
        self, source: str, environment: str, *, controls: Sequence[str], threshold: float, timeout: float | None
    ) -> CheckedCode:
        """Check a judge on the shipped episodes, and that the declared null controls stay below the threshold.

        :raises NotFound: for an unknown environment.
        """
        card = load_card(environment)
        episodes = await asyncio.to_thread(control_trajectories, environment)
        require_controls(controls, episodes, environment)
        report = await self._runner.check_judge(source, card, episodes, timeout=timeout)
        failures = list(report.failures)
        if report.ok:
            failures += null_failures(
                controls, report.scores, episodes, card=card, threshold=threshold or DEFAULT_THRESHOLD
            )
        report = replace(report, ok=not failures, failures=failures)
        self._log.info("checked", subject="judge", ok=report.ok, rules=[failure.rule for failure in failures])
        return CheckedCode(report, {label: max(values) for label, values in report.scores.items() if values})

    async def judge(
        self, source: str, environment: str, rollouts: Sequence[str], *, time_reversed: bool, timeout: float | None
    ) -> list[JudgedRollout]:
        """A judge's verdicts on rollouts.

        :param rollouts: artifact keys.
        :returns: one for each rollout, in the order asked.
        :raises NotFound: for an unknown environment or rollout.
        :raises FailedPrecondition: when the judge fails on a rollout (``JUDGE_FAILED``): a crash is no low score.
        """
        violations = lint_judge(source, load_card(environment))
        if violations:
            first = violations[0]
            raise _failed("", first.rule, first.line, first.message, "")
        episodes = await asyncio.to_thread(self._load, rollouts, environment)
        backwards = [episode.time_reversed() for episode in episodes] if time_reversed else []
        try:
            results = await self._runner.judge(source, [*episodes, *backwards], timeout=timeout)
        except JudgeFailure as error:
            raise self._blame(error, rollouts) from error
        scores: list[float | None] = [result.score for result in results[len(episodes) :]]
        scores = scores or [None] * len(episodes)
        return [
            JudgedRollout(key, result, score)
            for key, result, score in zip(rollouts, results[: len(episodes)], scores, strict=True)
        ]

    async def measure(self, code: str, environment: str, rollout: str, *, timeout: float | None) -> dict[str, float]:
        """What ``check(trajectory, np)`` of a piece of code measures on a rollout.

        It runs as a judge whose evidence is what it returns, under a judge's rules and bounds.

        :raises InvalidArgument: with the rule and the line, where the code fails; ``CHECK_FAILED``.
        """
        source = code.rstrip() + _AS_JUDGE
        violations = lint_judge(source, load_card(environment))
        if violations:
            first = violations[0]
            raise _unmeasured(first.rule, first.line, first.message)
        episodes = await asyncio.to_thread(self._load, [rollout], environment)
        try:
            results = await self._runner.judge(source, episodes, timeout=timeout)
        except JudgeFailure as error:
            raise _unmeasured(
                error.failure.rule, error.failure.line, error.failure.message, error.failure.seen
            ) from error
        return dict(results[0].evidence)

    async def load(self, rollouts: Sequence[str], environment: str) -> list[Trajectory]:
        """Recorded rollouts, by artifact key.

        :raises NotFound: for one that is not there.
        """
        return await asyncio.to_thread(self._load, rollouts, environment)

    @property
    def runner(self) -> SandboxRunner:
        """Where generated code runs."""
        return self._runner

    def _load(self, rollouts: Sequence[str], environment: str) -> list[Trajectory]:
        with tempfile.TemporaryDirectory(prefix="dressage-judge-") as folder:
            return [self._read(key, environment, Path(folder) / "rollout.npz") for key in rollouts]

    def _read(self, key: str, environment: str, path: Path) -> Trajectory:
        try:
            path.write_bytes(self._store.get(key))
        except NotFound as error:
            message = f"rollouts: there is no recorded rollout {key!r} in the artifact store"
            raise NotFound(message, reason="ROLLOUT_NOT_FOUND", metadata={"rollout": key}) from error
        try:
            trajectory = Trajectory.load(path)
        except InvalidArgument as error:
            raise InvalidArgument(f"rollout {key}: {error.message}", field="rollouts", reason="BAD_ROLLOUT") from error
        if trajectory.environment != environment:
            message = f"rollout {key} is of {trajectory.environment}, but the judge is asked about {environment}"
            raise InvalidArgument(message, field="environment", reason="WRONG_ENVIRONMENT")
        return trajectory

    def _blame(self, error: JudgeFailure, rollouts: Sequence[str]) -> FailedPrecondition:
        names = list(dict.fromkeys(rollouts[place % len(rollouts)] for place in error.places))
        first = names[0]
        if error.places[0] >= len(rollouts):
            first += " (played backwards)"
        more = len(names) - 1
        where = (
            first if not more else f"{first} and {more} other{'s' if more > 1 else ''} ({', '.join(names[1:_SHOWN])})"
        )
        failure = error.failure
        self._log.warning("judge failed", rollouts=names[:_SHOWN], rule=failure.rule, line=failure.line)
        metadata = {"rollout": first, "rollouts": ",".join(names[:_NAMED])}
        return _failed(where, failure.rule, failure.line, failure.message, failure.seen, metadata)


def _failed(
    where: str, rule: str, line: int, message: str, seen: str, metadata: Mapping[str, str] | None = None
) -> FailedPrecondition:
    on = f" on {where}" if where else ""
    at = f" at line {line}" if line else ""
    told = f"the judge failed{on}{at}: {message}" + (f" Seen: {seen}" if seen else "")
    details = {"rollout": "", **(metadata or {}), "rule": rule, "line": str(line)}
    return FailedPrecondition(told, reason="JUDGE_FAILED", metadata=details)


def _unmeasured(rule: str, line: int, message: str, seen: str = "") -> InvalidArgument:
    at = f", line {line}" if line else ""
    told = f"the check failed ({rule}{at}): {message}" + (f" Seen: {seen}" if seen else "")
    return InvalidArgument(told, field="code", reason="CHECK_FAILED")
