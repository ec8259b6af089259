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
from dressage.contracts import JudgeResult
from dressage.contracts.footage import MAX_WINDOW_FRAMES, OVERVIEW_FRAMES, Footage
from dressage.contracts.rubric import UNKNOWN
from dressage.errors import DeadlineExceeded, DressageError, InvalidArgument
from dressage.serving.costs import cost_of
from google.protobuf.message import Message
from prometheus_client import Counter

from dressage_judge import merging, windows
from dressage_judge.budget import BudgetTracker
from dressage_judge.clients import AgentClient, RendererClient, is_permanent
from dressage_judge.evidence import Evidence, episode_video, frames_prefix
from dressage_judge.judging import CodeJudge, RolloutResult

TEMPLATE = "template/v1"
_LEAST_SECONDS = 5.0
_MARGIN_SECONDS = 1.0
DISAGREEMENTS = Counter(
    "dressage_judge_disagreements_total", "Rollouts on which code and video differed by more than 0.2."
)


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
class VideoSkip:
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
    ) -> VideoContext | VideoSkip:
        """Return the visual criteria, or the reason why the rollouts are not judged by video.

        :raises InvalidArgument: for a video request without a brief, or for rollouts that are not the request's.
        :raises DressageError: for transient faults.
        """
        check_video(request)
        problem = await self._model_problem(request.model, request.api_base)
        if problem:
            return VideoSkip(problem)
        budget = BudgetTracker(request.remaining_budget)
        task = agent_pb.Task(video_criteria=agent_pb.VideoCriteriaTask(brief=request.brief))
        context = VideoContext(request, (), budget, remaining, session_pb2.Cost())
        try:
            key = f"video_criteria/{digest(request.brief, request.model)}"
            result = await self._converse(context, task, key)
        except DressageError as error:
            if not is_permanent(error):
                raise
            return VideoSkip(error.message, cost_of(error))
        return replace(context, criteria=tuple(result.video_criteria.criteria), opening_cost=result.cost)

    async def judge(self, context: VideoContext, rollout_result: RolloutResult, message: pb.RolloutJudgment) -> None:
        """Judge one rollout by video and merge the verdict into its judgment; a permanent failure adds a notice.

        :param message: the judgment by code, or an empty one without a code judge; it is modified.
        :raises DressageError: for transient faults.
        """
        # Rollouts that are judged concurrently have separate costs.
        context = replace(context, budget=context.budget.child())
        try:
            await self._judge(context, rollout_result, message)
        except DressageError as error:
            if not is_permanent(error):
                raise
            self._log.warning("not judged by video", rollout=rollout_result.rollout, reason=error.reason)
            message.notices.append(error.message)
        message.judgment.cost.CopyFrom(context.budget.spent)

    async def _judge(self, context: VideoContext, rollout_result: RolloutResult, message: pb.RolloutJudgment) -> None:
        request, result = context.request, rollout_result.result
        footage = Footage.of(request.video.options, field="video.options")
        window = await self._window(context, rollout_result, footage)
        task = agent_pb.VideoJudgeTask(
            brief=request.brief, criteria=context.criteria, votes=footage.votes, window_reason=window.reason
        )
        await self._show(context, rollout_result.rollout, window, footage, task)
        place = digest(task, request.model, rollout_result.rollout)
        verdict = (
            await self._converse(context, agent_pb.Task(video_judge=task), f"{_key(request)}/{place}/video")
        ).video_verdict
        if result is None:
            merging.by_video_alone(message, verdict, threshold=request.pass_threshold)
            return
        seconds = task.video.episode_seconds
        decision = await self._decide(context, rollout_result.rollout, result, verdict, place=place, seconds=seconds)
        merging.merge(message, verdict, decision, threshold=request.pass_threshold)
        if not decision.agreed:
            DISAGREEMENTS.inc()

    async def _window(self, context: VideoContext, rollout_result: RolloutResult, footage: Footage) -> windows.Window:
        """The decisive window: the requested one, or the one that the trajectory speaks for."""
        request = context.request
        if request.video.HasField("start"):
            start = request.video.start
            return windows.Window(start, start + footage.window_seconds, "the request names it")
        (trajectory,) = await self._code.load([rollout_result.rollout], request.environment)
        evidence = rollout_result.result.evidence if rollout_result.result is not None else {}
        return windows.choose(trajectory, context.criteria, evidence, seconds=footage.window_seconds)

    async def _show(
        self,
        context: VideoContext,
        rollout: str,
        window: windows.Window,
        footage: Footage,
        task: agent_pb.VideoJudgeTask,
    ) -> None:
        """Render the overview and the window, and add them to the task; a window without a reason is the whole episode."""

        async def render(sampling: renderer_pb.RenderFramesRequest) -> agent_pb.EpisodeVideo:
            sampling.trajectory, sampling.camera = rollout, footage.camera
            sampling.overlay, sampling.pages, sampling.clip = not context.request.video.no_overlay, True, True
            sampling.prefix = frames_prefix(rollout, digest(sampling))
            return episode_video(await self._renderer.frames(sampling, seconds=self._timeout(context)), sampling)

        frames = 0
        if window.reason:
            task.overview.CopyFrom(await render(renderer_pb.RenderFramesRequest(max_frames=OVERVIEW_FRAMES)))
            frames = len(task.overview.times)
        sampling = renderer_pb.RenderFramesRequest(
            fps=footage.fps,
            start=window.start,
            end=window.end,
            max_frames=MAX_WINDOW_FRAMES,
            motion_trail=footage.motion_trail,
            first_number=frames + 1,
        )
        task.video.CopyFrom(await render(sampling))

    async def _decide(
        self,
        context: VideoContext,
        rollout: str,
        result: JudgeResult,
        verdict: agent_pb.VideoVerdict,
        *,
        place: str,
        seconds: float,
    ) -> merging.Decision:
        code, video = result.score, verdict.score if verdict.known else None
        not_shown = [entry.criterion.title for entry in verdict.criteria if _mostly_unknown(entry)]
        if not not_shown and video is not None and not merging.need_synthesis(code, video):
            return merging.by_rubric(code, video)
        request = context.request
        synthesiser = agent_pb.SynthesiserTask(
            brief=request.brief,
            code_score=code,
            code_criteria=result.criteria,
            code_evidence=result.evidence,
            judge_source=request.judge_source,
            video_score=verdict.score,
            video_spread=verdict.spread,
            visual_scores=verdict.criteria,
            episode_seconds=seconds,
        )
        key = f"{_key(request)}/{place}/synthesis/{digest(synthesiser)}"
        evidence = Evidence(
            rollout=rollout,
            request=request,
            key=key,
            code=self._code,
            frames=lambda sampling: self._renderer.frames(sampling, seconds=self._timeout(context)),
            converse=lambda task, task_key: self._converse(context, task, task_key),
            remaining=context.remaining,
            camera=request.video.options.camera,
        )
        try:
            task = agent_pb.Task(synthesiser=synthesiser)
            answer = await self._converse(context, task, key, evidence)
        except DressageError as error:
            if not is_permanent(error):
                raise
            return merging.without_synthesis(code, video, error.message)
        return merging.by_synthesis(code, video, answer.synthesis, not_shown)

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
            context.budget.charge(cost_of(error))
            raise
        context.budget.charge(result.cost)
        return result

    async def _model_problem(self, model: str, api_base: str) -> str:
        """Why a model cannot judge video; empty if it can."""
        if model in ("", TEMPLATE):
            return "the request has no language model"
        described = await self._agent.describe(model, api_base)
        if not described.language_model or not described.configured:
            return described.problem or f"{model} is not configured"
        if not described.supports_images:
            return f"{model} does not support vision"
        return ""

    def _timeout(self, context: VideoContext) -> float:
        remaining = context.remaining()
        seconds = self._seconds if remaining is None else min(self._seconds, remaining - _MARGIN_SECONDS)
        if seconds < _LEAST_SECONDS:
            raise DeadlineExceeded("the deadline left no time for the video judge", reason="VIDEO_TIMEOUT")
        return seconds


def check_video(request: pb.JudgeRequest) -> None:
    """Check that the rollouts of a request can be judged by video.

    :raises InvalidArgument: without an intent, for rollouts that are not the request's, or for a window of too many frames.
    """
    if not request.brief.intent:
        raise InvalidArgument(field="brief.intent", value="", expected="the intended behaviour")
    others = sorted(set(request.video.rollouts) - set(request.rollouts))
    if others:
        raise InvalidArgument(field="video.rollouts", value=others[0], expected="one of the request's rollouts")
    Footage.of(request.video.options, field="video.options")


def _mostly_unknown(entry: agent_pb.VisualScore) -> bool:
    return 2 * list(entry.statuses).count(UNKNOWN) > len(entry.statuses)


def digest(*parts: Message | str) -> str:
    """Return twelve hexadecimal digits of a hash of the parts."""
    sha256 = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part.SerializeToString(deterministic=True)
        sha256.update(len(data).to_bytes(8, "big") + data)
    return sha256.hexdigest()[:12]


def _key(request: pb.JudgeRequest) -> str:
    return request.key.rstrip("/") or "judge"
