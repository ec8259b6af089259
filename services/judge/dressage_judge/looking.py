"""Video judging: what to look for, the pictures, the votes, and what to do when code and video differ.

llm-agent holds the models, the renderer the pictures; here is who asks whom for what. Every model reply is journalled by
llm-agent under the request's session and key, with a mark of all that the question depends on: a repeat after a crash asks the
same and buys nothing, and another model, another intent or another sampling asks anew.
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
from dressage.serving.bills import billed
from google.protobuf.message import Message

from dressage_judge import merging
from dressage_judge.clients import AgentClient, Progress, RendererClient, lasting
from dressage_judge.evidence import Evidence, footage_of, frames_prefix
from dressage_judge.judging import CodeJudge, JudgedRollout
from dressage_judge.metrics import DISAGREEMENTS
from dressage_judge.spending import Purse

TEMPLATE = "template/v1"
_LEAST_SECONDS = 5.0
_MARGIN_SECONDS = 1.0


@dataclass(frozen=True)
class Looking:
    """What one request's looking shares: the criteria, the purse, and how much time is left.

    :param left: seconds that the caller still waits; None for no bound.
    :param opening_cost: what the criteria cost, to be told with one of the rollouts.
    """

    request: pb.JudgeRequest
    criteria: tuple[agent_pb.VisualCriterion, ...]
    purse: Purse
    left: Callable[[], float | None]
    progress: Progress
    opening_cost: session_pb2.Cost


@dataclass(frozen=True)
class Refusal:
    """Why nothing is looked at.

    :param opening_cost: of finding out.
    """

    notice: str
    opening_cost: session_pb2.Cost = field(default_factory=session_pb2.Cost)


class VideoJudge:
    """Looks at rollouts.

    :param seconds: bound of one call to another service.
    """

    def __init__(self, *, agent: AgentClient, renderer: RendererClient, code: CodeJudge, seconds: float) -> None:
        self._agent = agent
        self._renderer = renderer
        self._code = code
        self._seconds = seconds
        self._log = structlog.get_logger("dressage.judge")

    async def begin(
        self, request: pb.JudgeRequest, *, left: Callable[[], float | None], progress: Progress
    ) -> Looking | Refusal:
        """What to look for; or why nothing is looked at.

        :raises InvalidArgument: for a video request without a brief, or for rollouts that are not the request's.
        :raises DressageError: for faults that a repeat may not meet.
        """
        check_video(request)
        refusal = await self._refusal(request.model)
        if refusal:
            return Refusal(refusal)
        purse = Purse(request.remaining_budget)
        task = agent_pb.Task(video_criteria=agent_pb.VideoCriteriaTask(brief=request.brief))
        looking = Looking(request, (), purse, left, progress, session_pb2.Cost())
        try:
            key = f"video_criteria/{mark(request.brief, request.model)}"
            result = await self._converse(looking, task, key)
        except DressageError as error:
            if not lasting(error):
                raise
            return Refusal(f"{error.message}: judged by code alone", billed(error))
        return replace(looking, criteria=tuple(result.video_criteria.criteria), opening_cost=result.cost)

    async def look(self, looking: Looking, judged: JudgedRollout, message: pb.RolloutJudgment) -> None:
        """Looks at one rollout and merges what was seen into its judgment; where that fails for good, says so in a notice.

        :param message: the judgment by code; changed in place.
        :raises DressageError: for faults that a repeat may not meet.
        """
        # The costs of rollouts that are looked at beside each other must not be mixed.
        looking = replace(looking, purse=looking.purse.beside())
        try:
            await self._look(looking, judged, message)
        except DressageError as error:
            if not lasting(error):
                raise
            self._log.warning("judged by code alone", rollout=judged.rollout, reason=error.reason)
            message.notices.append(f"{error.message}: judged by code alone")
        message.judgment.cost.CopyFrom(looking.purse.spent)

    async def _look(self, looking: Looking, judged: JudgedRollout, message: pb.RolloutJudgment) -> None:
        request, options = looking.request, looking.request.video
        place = mark(options_of(options), request.brief, request.model, judged.rollout)
        frames = await self._renderer.frames(
            renderer_pb.RenderFramesRequest(
                trajectory=judged.rollout,
                prefix=frames_prefix(judged.rollout, mark(options_of(options))),
                fps=options.fps,
                start=options.start,
                end=options.end,
                max_frames=options.max_frames,
                overlay=not options.no_overlay,
                motion_trail=options.motion_trail,
                pages=True,
                clip=True,
            ),
            seconds=self._timeout(looking),
        )
        footage = footage_of(frames, motion_trail=options.motion_trail, overlay=not options.no_overlay)
        task = agent_pb.Task(
            video_judge=agent_pb.VideoJudgeTask(
                brief=request.brief, criteria=looking.criteria, footage=footage, votes=options.votes
            )
        )
        verdict = (await self._converse(looking, task, f"{_key(request)}/{place}/video")).video_verdict
        decision = await self._decide(looking, judged, verdict, place, frames.episode_seconds)
        merging.merge(message, verdict, decision, threshold=request.pass_threshold)
        if not decision.agreed:
            DISAGREEMENTS.inc()

    async def _decide(
        self, looking: Looking, judged: JudgedRollout, verdict: agent_pb.VideoVerdict, place: str, seconds: float
    ) -> merging.Decision:
        code, video = judged.result.score, verdict.score
        if not merging.need_synthesis(code, video):
            return merging.by_rubric(code, video)
        request = looking.request
        looking.progress(f"code {code:.2f} and video {video:.2f} differ on {judged.rollout}; looking again")
        asked = agent_pb.SynthesiserTask(
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
        key = f"{_key(request)}/{place}/synthesis/{mark(asked)}"
        evidence = Evidence(
            rollout=judged.rollout,
            request=request,
            key=key,
            code=self._code,
            frames=lambda wanted: self._renderer.frames(wanted, seconds=self._timeout(looking)),
            converse=lambda task, task_key: self._converse(looking, task, task_key),
            left=looking.left,
        )
        try:
            task = agent_pb.Task(synthesiser=asked)
            result = await self._converse(looking, task, key, evidence)
        except DressageError as error:
            if not lasting(error):
                raise
            return merging.unsettled(code, video, error.message)
        return merging.by_synthesis(code, video, result.synthesis)

    async def _converse(
        self, looking: Looking, task: agent_pb.Task, key: str, evidence: Evidence | None = None
    ) -> agent_pb.TaskResult:
        request = looking.request
        task.session, task.key, task.model, task.thinking = request.session, key, request.model, request.thinking
        task.remaining_budget.CopyFrom(looking.purse.left())
        try:
            result = await self._agent.converse(
                task,
                seconds=self._timeout(looking),
                tools=evidence.tools() if evidence else None,
                progress=looking.progress,
            )
        except DressageError as error:
            looking.purse.pay(billed(error))
            raise
        looking.purse.pay(result.cost)
        return result

    async def _refusal(self, model: str) -> str:
        """Why a model cannot be asked to look; empty if it can."""
        if model in ("", TEMPLATE):
            return "no language model is named: judged by code alone"
        described = await self._agent.describe(model)
        if not described.language_model or not described.configured:
            return f"{described.problem or f'{model} is not configured'}: judged by code alone"
        if not described.supports_images:
            return f"{model} is not known to see pictures: judged by code alone"
        return ""

    def _timeout(self, looking: Looking) -> float:
        left = looking.left()
        seconds = self._seconds if left is None else min(self._seconds, left - _MARGIN_SECONDS)
        if seconds < _LEAST_SECONDS:
            raise DeadlineExceeded("the deadline left no time to look at video", reason="VIDEO_TIMEOUT")
        return seconds


def check_video(request: pb.JudgeRequest) -> None:
    """Refuses what cannot be looked at.

    :raises InvalidArgument: without an intent, or for rollouts that are not the request's.
    """
    if not request.brief.intent:
        raise InvalidArgument(field="brief.intent", value="", expected="what the video is to be judged by")
    strangers = sorted(set(request.video.rollouts) - set(request.rollouts))
    if strangers:
        raise InvalidArgument(field="video.rollouts", value=strangers[0], expected="one of the request's rollouts")


def options_of(options: pb.VideoOptions) -> pb.VideoOptions:
    """How it is looked at, without what is."""
    alone = pb.VideoOptions()
    alone.CopyFrom(options)
    del alone.rollouts[:]
    return alone


def mark(*parts: Message | str) -> str:
    """Twelve hexadecimal digits that differ where a part differs."""
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part.SerializeToString(deterministic=True)
        digest.update(len(data).to_bytes(8, "big") + data)
    return digest.hexdigest()[:12]


def _key(request: pb.JudgeRequest) -> str:
    return request.key.rstrip("/") or "judge"
