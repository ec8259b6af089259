"""The tools of a synthesis: a question about a window of the episode, and a measurement in the sandbox."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from dressage.api.internal.v1 import agent_service_pb2 as agent_pb
from dressage.api.internal.v1 import judge_service_pb2 as pb
from dressage.api.internal.v1 import renderer_service_pb2 as renderer_pb
from dressage.contracts.footage import DEFAULT_FPS, MAX_ASK_FRAMES, MAX_FPS
from dressage.errors import DressageError, InvalidArgument
from dressage.serving.conversation import Tool

from dressage_judge.clients import is_permanent
from dressage_judge.judging import CodeJudge

_ROLLOUTS, _FRAMES = "/rollouts/", "/frames/"


@dataclass(frozen=True)
class Evidence:
    """The tools of one synthesis.

    :param key: the synthesis's key; questions are journalled below it, by the number of the call.
    :param frames: calls the renderer.
    :param converse: calls llm-agent.
    :param remaining: returns the seconds until the caller's deadline; None for none.
    :param camera: name of a camera of the model; empty for one that follows the robot.
    """

    rollout: str
    request: pb.JudgeRequest
    key: str
    code: CodeJudge
    frames: Callable[[renderer_pb.RenderFramesRequest], Awaitable[renderer_pb.RenderFramesResponse]]
    converse: Callable[[agent_pb.Task, str], Awaitable[agent_pb.TaskResult]]
    remaining: Callable[[], float | None]
    camera: str = ""

    def tools(self) -> Mapping[str, Tool]:
        """Return the tools by name."""
        return {"ask_video": self.ask_video, "run_check": self.run_check}

    async def ask_video(self, call: str, arguments: Mapping[str, Any]) -> str:
        """Return a vision model's answer about a window of the episode, with the times of the frames that it saw.

        A low rate is raised, to ten frames per second where the frames suffice, so that motion is visible.

        :raises InvalidArgument: for an invalid window.
        """
        question = str(arguments["question"])
        start, end, fps = (float(arguments[name]) for name in ("start", "end", "fps"))
        if not end > start:
            raise InvalidArgument(field="end", value=end, expected=f"a second after start ({start:g})")
        enough = min(DEFAULT_FPS, (MAX_ASK_FRAMES - 1) / (end - start))
        sampling = renderer_pb.RenderFramesRequest(
            trajectory=self.rollout,
            fps=min(max(fps, enough), MAX_FPS),
            start=start,
            end=end,
            max_frames=MAX_ASK_FRAMES,
            camera=self.camera,
            overlay=True,
            pages=True,
            clip=True,
        )
        window = hashlib.sha256(sampling.SerializeToString(deterministic=True)).hexdigest()[:12]
        sampling.prefix = frames_prefix(self.rollout, f"ask-{window}")
        frames = await self.frames(sampling)
        video = episode_video(frames, sampling)
        task = agent_pb.Task(
            video_question=agent_pb.VideoQuestionTask(brief=self.request.brief, video=video, question=question)
        )
        try:
            answer = (await self.converse(task, f"{self.key}/ask/{call}")).video_answer
        except DressageError as error:
            if not is_permanent(error) or error.reason == "LLM_BUDGET_EXHAUSTED":
                raise
            raise InvalidArgument(f"question: no answer ({error.message})", field="question") from error
        reply = {
            "answer": answer.answer,
            "certain": answer.certain,
            "frames_per_second": round(frames.fps, 3),
            "frames_at": [round(moment, 3) for moment in frames.times],
        }
        return json.dumps(reply, ensure_ascii=False)

    async def run_check(self, call: str, arguments: Mapping[str, Any]) -> str:
        """Return the values that a check measured.

        :raises InvalidArgument: with the rule and the line of a failure.
        """
        measured = await self.code.measure(
            str(arguments["code"]), self.request.environment, self.rollout, timeout=self.remaining()
        )
        return json.dumps(measured)


def frames_prefix(rollout: str, digest: str) -> str:
    """Return the artifact prefix of a rollout's frames, in a folder next to that of the rollouts."""
    stem = rollout.removesuffix(".npz")
    folder, slash, name = stem.rpartition(_ROLLOUTS)
    return f"{folder}{_FRAMES}{name}/{digest}" if slash else f"{stem}-frames/{digest}"


def episode_video(
    frames: renderer_pb.RenderFramesResponse, sampling: renderer_pb.RenderFramesRequest
) -> agent_pb.EpisodeVideo:
    """Return rendered frames, and how they were requested, as the input of a task."""
    return agent_pb.EpisodeVideo(
        pages=frames.pages,
        frames=frames.frames,
        clip=frames.clip,
        times=frames.times,
        fps=frames.fps,
        start=frames.start,
        end=frames.end,
        episode_seconds=frames.episode_seconds,
        motion_trail=sampling.motion_trail,
        overlay=sampling.overlay,
        first_number=sampling.first_number,
        camera=sampling.camera,
    )
