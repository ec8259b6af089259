"""Returns of recorded rollouts and of null controls under a generated reward, for its pre-screening."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dressage.api.internal.v1 import judge_service_pb2 as pb
from dressage.api.v1 import event_pb2
from dressage.contracts import CheckFailure, RewardError, lint_judge, lint_reward
from dressage.envs.cards import load_card
from dressage.envs.trajectory import Trajectory

from dressage_judge.controls import control_trajectories, describe
from dressage_judge.judging import CodeJudge
from dressage_judge.sandboxed import JudgeFailure

CONTROLS = ("random", "untrained", "motionless")
_PER_CONTROL = 2


async def score(judge: CodeJudge, request: pb.ScoreRequest, *, timeout: float | None) -> pb.ScoreResponse:
    """Return the response of `JudgeService.Score`.

    The response reports a reward that fails on a trajectory, since the fault is in the generated code, not in the request. If
    the judge fails on a control, the response has no controls: judging the rollouts reports that failure.

    :raises NotFound: for an unknown environment or rollout.
    """
    card = load_card(request.environment)
    violations = lint_reward(request.reward_source, card)
    if violations:
        first = [CheckFailure(each.rule, each.line, each.message, "") for each in violations[:1]]
        return pb.ScoreResponse(failures=[_failure(each) for each in first])
    rollouts = await judge.load(list(request.rollouts), request.environment)
    controls = _controls(request.environment) if request.judge_source else []
    verdicts = await _control_scores(judge, request, [episode for _, episode in controls], timeout)
    if verdicts is None:
        controls, verdicts = [], []
    try:
        scores = await judge.runner.score(
            request.reward_source, card, [*rollouts, *(episode for _, episode in controls)], timeout=timeout
        )
    except RewardError as error:
        return pb.ScoreResponse(failures=[_failure(error.failure)])
    answer = pb.ScoreResponse()
    for key, episode, entry in zip(request.rollouts, rollouts, scores[: len(rollouts)], strict=True):
        answer.scored.append(_scored_trajectory(episode, entry, rollout=key))
    for (kind, episode), entry, verdict in zip(controls, scores[len(rollouts) :], verdicts, strict=True):
        answer.scored.append(_scored_trajectory(episode, entry, control=kind))
        answer.scored[-1].judge_score = verdict
    for message, episode in zip(answer.scored, [*rollouts, *(episode for _, episode in controls)], strict=True):
        message.description = describe(episode, card)
    return answer


def _controls(environment: str) -> list[tuple[str, Trajectory]]:
    shipped = control_trajectories(environment)
    return [(kind, episode) for kind in CONTROLS for episode in shipped.get(kind, [])[:_PER_CONTROL]]


async def _control_scores(
    judge: CodeJudge, request: pb.ScoreRequest, episodes: Sequence[Trajectory], timeout: float | None
) -> list[float] | None:
    """The judge's scores of the controls; None if it fails on one."""
    if not episodes:
        return []
    if lint_judge(request.judge_source, load_card(request.environment)):
        return None
    try:
        results = await judge.runner.judge(request.judge_source, episodes, timeout=timeout)
    except JudgeFailure:
        return None
    return [result.score for result in results]


def _scored_trajectory(
    episode: Trajectory, score: dict[str, Any], *, rollout: str = "", control: str = ""
) -> pb.ScoredTrajectory:
    message = pb.ScoredTrajectory(rollout=rollout, control=control, steps=episode.num_steps)
    message.terminated = bool(episode.terminated)
    setattr(message, "return", score["return"])
    message.terms.update(score["terms"])
    return message


def _failure(failure: CheckFailure) -> event_pb2.CheckFailure:
    return event_pb2.CheckFailure(rule=failure.rule, line=failure.line, message=failure.message, seen=failure.seen)
