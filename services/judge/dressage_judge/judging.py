"""Checks of generated code, and judging by code."""

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
from dressage.envs.custom import is_registered_task
from dressage.envs.trajectory import Trajectory, load_check_trajectories
from dressage.errors import FailedPrecondition, InvalidArgument, NotFound
from dressage.programs.languages.store import read_description

from dressage_judge.controls import (
    FULL_LENGTH,
    ROLLOUT,
    ROLLOUT_REVERSED,
    TIME_REVERSED,
    control_trajectories,
    describe,
    full_length_trajectories,
    null_failures,
    require_controls,
    reversal_failures,
)
from dressage_judge.sandboxed import JudgeFailure, SandboxRunner

_SHOWN, _NAMED = 6, 20
_AS_JUDGE = """

def judge(trajectory, np):
    return {"score": 0.0, "criteria": {"measured": 0.0}, "evidence": check(trajectory, np)}
"""

DEFAULT_THRESHOLD = 0.7
"""Pass threshold of a request without one; equals a session's default."""
DEFAULT_ACT_SECONDS = 1.0
"""Limit of one action of a policy, if a request has none."""


@dataclass(frozen=True)
class CodeCheck:
    """A check's report, and a judge's highest score for each kind of null control."""

    report: CheckReport
    control_scores: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class RolloutResult:
    """The result of a code judge for one rollout; None if no code judges it."""

    rollout: str
    result: JudgeResult | None


class CodeJudge:
    """Checks generated rewards and judges, and judges rollouts of an artifact store by code."""

    def __init__(self, *, store: ArtifactStore, runner: SandboxRunner) -> None:
        self._store = store
        self._runner = runner
        self._log = structlog.get_logger("dressage.judge")

    async def check_reward(self, source: str, environment: str, *, traceable: bool, timeout: float | None) -> CodeCheck:
        """Check a reward on the shipped episodes.

        :param traceable: also examine whether it can be compiled for a device.
        :raises NotFound: for an unknown environment.
        """
        card = load_card(environment)
        shipped = await asyncio.to_thread(control_trajectories, environment)
        episodes = [episode for group in shipped.values() for episode in group]
        report = await self._runner.check_reward(source, card, episodes, traceable=traceable, timeout=timeout)
        self._log.info("checked", subject="reward", ok=report.ok, rules=[failure.rule for failure in report.failures])
        return CodeCheck(report)

    async def check_policy(
        self, source: str, environment: str, *, act_seconds: float, timeout: float | None
    ) -> CodeCheck:
        """Check a code policy on the observations of the shipped episodes.

        :param act_seconds: limit of one action; 0 for 1 second.
        :raises NotFound: for an unknown environment.
        """
        card, episodes = load_card(environment), await asyncio.to_thread(_check_trajectories, environment)
        limit = act_seconds or DEFAULT_ACT_SECONDS
        report = await self._runner.check_policy(source, card, episodes, act_seconds=limit, timeout=timeout)
        self._log.info("checked", subject="policy", ok=report.ok, rules=[failure.rule for failure in report.failures])
        return CodeCheck(report)

    async def check_feedback(self, source: str, environment: str, *, timeout: float | None) -> CodeCheck:
        """Check a feedback class on the observations of the shipped episodes.

        :raises NotFound: for an unknown environment.
        """
        card, episodes = load_card(environment), await asyncio.to_thread(_check_trajectories, environment)
        report = await self._runner.check_feedback(source, card, episodes, timeout=timeout)
        self._log.info("checked", subject="feedback", ok=report.ok, rules=[failure.rule for failure in report.failures])
        return CodeCheck(report)

    async def read_replies(self, environment: str, replies: Sequence[str], *, timeout: float | None) -> list[list[str]]:
        """Find the programs in replies with the code of a registered language.

        :raises NotFound: for another environment.
        :raises DressageError: if that code fails.
        """
        if not is_registered_task(environment):
            message = f"{environment[:60]!r} is no task of a registered language"
            raise NotFound(message, reason="LANGUAGE_NOT_FOUND")
        description = read_description(environment.partition("/")[0])
        return await self._runner.read_replies(description, replies, timeout=timeout)

    async def check_judge(
        self,
        source: str,
        environment: str,
        *,
        controls: Sequence[str],
        threshold: float,
        timeout: float | None,
        episode_steps: int = 0,
        rollouts: Sequence[str] = (),
    ) -> CodeCheck:
        """Check a judge on the shipped episodes and on full-length ones, and that null controls stay below the threshold.

        :param episode_steps: steps of a full-length episode; 0: as on the environment's card.
        :param rollouts: artifact keys of rollouts that it must also judge; those that pass are a null control backwards.
        :raises NotFound: for an unknown environment or rollout.
        """
        card, threshold = load_card(environment), threshold or DEFAULT_THRESHOLD
        shipped = await asyncio.to_thread(control_trajectories, environment)
        require_controls(controls, shipped, environment)
        full_length = await asyncio.to_thread(full_length_trajectories, environment, episode_steps)
        rollout_episodes = await asyncio.to_thread(self._load, rollouts, environment)
        backwards = [episode.reverse_time() for episode in rollout_episodes] if TIME_REVERSED in controls else []
        episodes = {**shipped, FULL_LENGTH: full_length, ROLLOUT: rollout_episodes, ROLLOUT_REVERSED: backwards}
        report = await self._runner.check_judge(source, card, episodes, timeout=timeout)
        failures = list(report.failures)
        if report.ok:
            failures += null_failures(controls, report.scores, shipped, card=card, threshold=threshold)
            failures += reversal_failures(controls, report.scores, rollout_episodes, card=card, threshold=threshold)
        report = replace(report, ok=not failures, failures=failures)
        self._log.info("checked", subject="judge", ok=report.ok, rules=[failure.rule for failure in failures])
        labels = {label: [label] for label in shipped} | {TIME_REVERSED: [TIME_REVERSED, ROLLOUT_REVERSED]}
        scores = {label: [v for name in names for v in report.scores.get(name, ())] for label, names in labels.items()}
        return CodeCheck(report, {label: max(values) for label, values in scores.items() if values})

    async def judge(
        self, source: str, environment: str, rollouts: Sequence[str], *, timeout: float | None
    ) -> list[RolloutResult]:
        """Judge rollouts by code.

        :param rollouts: artifact keys.
        :return: one result for each rollout, in the same order.
        :raises NotFound: for an unknown environment or rollout.
        :raises FailedPrecondition: if the judge fails on a rollout (``JUDGE_FAILED``): a crash is not a low score.
        """
        violations = lint_judge(source, load_card(environment))
        if violations:
            first = violations[0]
            raise _failure("", first.rule, first.line, first.message, "")
        episodes = await asyncio.to_thread(self._load, rollouts, environment)
        try:
            results = await self._runner.judge(source, episodes, timeout=timeout)
        except JudgeFailure as error:
            raise self._failure_on(error, rollouts, episodes) from error
        return [RolloutResult(key, result) for key, result in zip(rollouts, results, strict=True)]

    async def measure(self, code: str, environment: str, rollout: str, *, timeout: float | None) -> dict[str, float]:
        """Return the result of a module's ``check(trajectory, np)`` on a rollout.

        It runs as a judge that returns the result as its evidence, under a judge's rules and limits.

        :raises InvalidArgument: ``CHECK_FAILED``, with the rule and the line of the failure.
        """
        source = code.rstrip() + _AS_JUDGE
        violations = lint_judge(source, load_card(environment))
        if violations:
            first = violations[0]
            raise _check_failure(first.rule, first.line, first.message)
        episodes = await asyncio.to_thread(self._load, [rollout], environment)
        try:
            results = await self._runner.judge(source, episodes, timeout=timeout)
        except JudgeFailure as error:
            raise _check_failure(
                error.failure.rule, error.failure.line, error.failure.message, error.failure.seen
            ) from error
        return dict(results[0].evidence)

    async def load(self, rollouts: Sequence[str], environment: str) -> list[Trajectory]:
        """Load recorded rollouts by artifact key.

        :raises NotFound: for a missing one.
        """
        return await asyncio.to_thread(self._load, rollouts, environment)

    @property
    def runner(self) -> SandboxRunner:
        """Runs generated code."""
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
            message = f"rollout {key} is of {trajectory.environment}, but the request is for {environment}"
            raise InvalidArgument(message, field="environment", reason="WRONG_ENVIRONMENT")
        return trajectory

    def _failure_on(
        self, error: JudgeFailure, rollouts: Sequence[str], episodes: Sequence[Trajectory]
    ) -> FailedPrecondition:
        names = list(dict.fromkeys(rollouts[place] for place in error.places))
        first = names[0]
        more = len(names) - 1
        subject = (
            first if not more else f"{first} and {more} other{'s' if more > 1 else ''} ({', '.join(names[1:_SHOWN])})"
        )
        failure = error.failure
        self._log.warning("judge failed", rollouts=names[:_SHOWN], rule=failure.rule, line=failure.line)
        # What the author of the judge needs besides the text: it does not see the rollout.
        episode = describe(episodes[error.places[0]], load_card(episodes[error.places[0]].environment))
        metadata = {"rollout": first, "rollouts": ",".join(names[:_NAMED]), "episode": episode}
        metadata |= {"failure": failure.message, "seen": failure.seen}
        return _failure(subject, failure.rule, failure.line, failure.message, failure.seen, metadata)


def _check_trajectories(environment: str) -> list[Trajectory]:
    return [episode for group in load_check_trajectories(environment).values() for episode in group]


def _failure(
    subject: str, rule: str, line: int, message: str, seen: str, metadata: Mapping[str, str] | None = None
) -> FailedPrecondition:
    on = f" on {subject}" if subject else ""
    at = f" at line {line}" if line else ""
    text = f"the judge failed{on}{at}: {message}" + (f" Seen: {seen}" if seen else "")
    details = {"rollout": "", **(metadata or {}), "rule": rule, "line": str(line)}
    return FailedPrecondition(text, reason="JUDGE_FAILED", metadata=details)


def _check_failure(rule: str, line: int, message: str, seen: str = "") -> InvalidArgument:
    at = f", line {line}" if line else ""
    text = f"the check failed ({rule}{at}): {message}" + (f" Seen: {seen}" if seen else "")
    return InvalidArgument(text, field="code", reason="CHECK_FAILED")
