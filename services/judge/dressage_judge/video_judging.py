"""Judges rollouts by video: the visual criteria, the frames, the votes, and a synthesis if code and video differ.

llm-agent calls the models and the renderer renders the frames. llm-agent journals every model reply under the request's session
and a key with a digest of all inputs: a repeated request after a crash is answered from the journal, at no cost, while another
model, intent or sampling leads to new requests.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import structlog
from dressage.api.internal.v1 import agent_service_pb2 as agent_pb
from dressage.api.internal.v1 import judge_service_pb2 as pb
from dressage.api.internal.v1 import renderer_service_pb2 as renderer_pb
from dressage.api.v1 import session_pb2
from dressage.errors import DeadlineExceeded, DressageError, InvalidArgument
from dressage.serving.costs import attached_cost
from google.protobuf.message import Message

from dressage_judge import merging
from dressage_judge.budget import BudgetTracker
from dressage_judge.clients import AgentClient, RendererClient, is_permanent
from dressage_judge.evidence import Evidence, episode_video, frames_prefix
from dressage_judge.judging import CodeJudge, JudgedRollout
from dressage_judge.metrics import DISAGREEMENTS

TEMPLATE = "template/v1"
_LEAST_SECONDS = 5.0
_MARGIN_SECONDS = 1.0


@dataclass(frozen=True)
class VideoContext:
    """What the rollouts of one request share.

    :param remaining: returns the seconds until the caller's deadline; None for none.
    :param opening_cost: the cost of the criteria, which one of the rollouts reports.
    """

    request: pb.JudgeRequest
    criteria: tuple[agent_pb.VisualCriterion, ...]
    budget: BudgetTracker
    remaining: Callable[[], float | None]
    opening_cost: session_pb2.Cost


@dataclass(frozen=True)
class VideoSkipped:
    """The reason why rollouts are not judged by video.

    :param opening_cost: the cost up to that result.
    """

    notice: str
    opening_cost: session_pb2.Cost = field(default_factory=session_pb2.Cost)


class VideoJudge:
    """Judges rollouts by video.

    :param seconds: deadline of one call to another service.
    """

    def __init__(self, *, agent: AgentClient, renderer: RendererClient, code: CodeJudge, seconds: float) -> None:
        self._agent = agent
        self._renderer = renderer
        self._code = code
        self._seconds = seconds
        self._log = structlog.get_logger("dressage.judge")

    async def prepare(
        self, request: pb.JudgeRequest, *, remaining: Callable[[], float | None]
    ) -> VideoContext | VideoSkipped:
        """Return the visual criteria, or the reason why the rollouts are not judged by video.

        :raises InvalidArgument: for a video request without a brief, or for rollouts that are not the request's.
        :raises DressageError: for transient faults.
        """
        check_video(request)
        problem = await self._model_problem(request.model, request.api_base)
        if problem:
            return VideoSkipped(problem)
        budget = BudgetTracker(request.remaining_budget)
        task = agent_pb.Task(video_criteria=agent_pb.VideoCriteriaTask(brief=request.brief))
        context = VideoContext(request, (), budget, remaining, session_pb2.Cost())
        try:
            key = f"video_criteria/{digest(request.brief, request.model)}"
            result = await self._converse(context, task, key)
        except DressageError as error:
            if not is_permanent(error):
                raise
            return VideoSkipped(f"{error.message}: judged by code alone", attached_cost(error))
        return replace(context, criteria=tuple(result.video_criteria.criteria), opening_cost=result.cost)

    async def judge(self, context: VideoContext, judged: JudgedRollout, message: pb.RolloutJudgment) -> None:
        """Judge one rollout by video and merge the verdict into its judgment; a permanent failure adds a notice.

        :param message: the judgment by code, which is modified.
        :raises DressageError: for transient faults.
        """
        # Rollouts that are judged concurrently have separate costs.
        context = replace(context, budget=context.budget.child())
        try:
            await self._judge(context, judged, message)
        except DressageError as error:
            if not is_permanent(error):
                raise
            self._log.warning("judged by code alone", rollout=judged.rollout, reason=error.reason)
            message.notices.append(f"{error.message}: judged by code alone")
        message.judgment.cost.CopyFrom(context.budget.spent)

    async def _judge(self, context: VideoContext, judged: JudgedRollout, message: pb.RolloutJudgment) -> None:
        request, options = context.request, context.request.video
        place = digest(sampling_of(options), request.brief, request.model, judged.rollout)
        frames = await self._renderer.frames(
            renderer_pb.RenderFramesRequest(
                trajectory=judged.rollout,
                prefix=frames_prefix(judged.rollout, digest(sampling_of(options))),
                fps=options.fps,
                start=options.start,
                end=options.end,
                max_frames=options.max_frames,
                overlay=not options.no_overlay,
                motion_trail=options.motion_trail,
                pages=True,
                clip=True,
            ),
            seconds=self._timeout(context),
        )
        video = episode_video(frames, motion_trail=options.motion_trail, overlay=not options.no_overlay)
        task = agent_pb.Task(
            video_judge=agent_pb.VideoJudgeTask(
                brief=request.brief, criteria=context.criteria, video=video, votes=options.votes
            )
        )
        verdict = (await self._converse(context, task, f"{_key(request)}/{place}/video")).video_verdict
        decision = await self._decide(context, judged, verdict, place, frames.episode_seconds)
        merging.merge(message, verdict, decision, threshold=request.pass_threshold)
        if not decision.agreed:
            DISAGREEMENTS.inc()

    async def _decide(
        self, context: VideoContext, judged: JudgedRollout, verdict: agent_pb.VideoVerdict, place: str, seconds: float
    ) -> merging.Decision:
        code, video = judged.result.score, verdict.score
        if not merging.need_synthesis(code, video):
            return merging.by_rubric(code, video)
        request = context.request
        synthesiser = agent_pb.SynthesiserTask(
            brief=request.brief,
            code_score=code,
            code_criteria=judged.result.criteria,
            code_evidence=judged.result.evidence,
            judge_source=request.judge_source,
            video_score=video,
            video_spread=verdict.spread,
            visual_scores=verdict.criteria,
            episode_seconds=seconds,
        )
        key = f"{_key(request)}/{place}/synthesis/{digest(synthesiser)}"
        evidence = Evidence(
            rollout=judged.rollout,
            request=request,
            key=key,
            code=self._code,
            frames=lambda sampling: self._renderer.frames(sampling, seconds=self._timeout(context)),
            converse=lambda task, task_key: self._converse(context, task, task_key),
            remaining=context.remaining,
        )
        try:
            task = agent_pb.Task(synthesiser=synthesiser)
            result = await self._converse(context, task, key, evidence)
        except DressageError as error:
            if not is_permanent(error):
                raise
            return merging.unsettled(code, video, error.message)
        return merging.by_synthesis(code, video, result.synthesis)

    async def _converse(
        self, context: VideoContext, task: agent_pb.Task, key: str, evidence: Evidence | None = None
    ) -> agent_pb.TaskResult:
        request = context.request
        task.session, task.key, task.model, task.thinking = request.session, key, request.model, request.thinking
        task.api_base = request.api_base
        task.remaining_budget.CopyFrom(context.budget.remaining())
        try:
            result = await self._agent.converse(
                task,
                seconds=self._timeout(context),
                tools=evidence.tools() if evidence else None,
            )
        except DressageError as error:
            context.budget.charge(attached_cost(error))
            raise
        context.budget.charge(result.cost)
        return result

    async def _model_problem(self, model: str, api_base: str) -> str:
        """Why a model cannot judge video; empty if it can."""
        if model in ("", TEMPLATE):
            return "the request has no language model: judged by code alone"
        described = await self._agent.describe(model, api_base)
        if not described.language_model or not described.configured:
            return f"{described.problem or f'{model} is not configured'}: judged by code alone"
        if not described.supports_images:
            return f"{model} does not support vision: judged by code alone"
        return ""

    def _timeout(self, context: VideoContext) -> float:
        remaining = context.remaining()
        seconds = self._seconds if remaining is None else min(self._seconds, remaining - _MARGIN_SECONDS)
        if seconds < _LEAST_SECONDS:
            raise DeadlineExceeded("the deadline left no time for the video judge", reason="VIDEO_TIMEOUT")
        return seconds


def check_video(request: pb.JudgeRequest) -> None:
    """Check that the rollouts of a request can be judged by video.

    :raises InvalidArgument: without an intent, or for rollouts that are not the request's.
    """
    if not request.brief.intent:
        raise InvalidArgument(field="brief.intent", value="", expected="the intended behaviour")
    others = sorted(set(request.video.rollouts) - set(request.rollouts))
    if others:
        raise InvalidArgument(field="video.rollouts", value=others[0], expected="one of the request's rollouts")


def sampling_of(options: pb.VideoOptions) -> pb.VideoOptions:
    """Return the options without the rollouts."""
    sampling = pb.VideoOptions()
    sampling.CopyFrom(options)
    del sampling.rollouts[:]
    return sampling


def digest(*parts: Message | str) -> str:
    """Return twelve hexadecimal digits of a hash of the parts."""
    sha256 = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part.SerializeToString(deterministic=True)
        sha256.update(len(data).to_bytes(8, "big") + data)
    return sha256.hexdigest()[:12]


def _key(request: pb.JudgeRequest) -> str:
    return request.key.rstrip("/") or "judge"
