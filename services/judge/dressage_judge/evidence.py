"""What a synthesis may ask for: another look at a window of the episode, and a measurement in the sandbox."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from dressage.api.internal.v1 import agent_service_pb2 as agent_pb
from dressage.api.internal.v1 import judge_service_pb2 as pb
from dressage.api.internal.v1 import renderer_service_pb2 as renderer_pb
from dressage.errors import DressageError, InvalidArgument
from dressage.serving.conversation import Tool

from dressage_judge.clients import lasting
from dressage_judge.judging import CodeJudge

MAX_ASK_FRAMES = 16
"""Frames of another look: one page."""

_ROLLOUTS, _FRAMES = "/rollouts/", "/frames/"


@dataclass(frozen=True)
class Evidence:
    """The tools of one synthesis.

    :param key: the synthesis's key; questions are journalled below it by the number of the call.
    :param frames: the renderer.
    :param converse: llm-agent.
    :param left: seconds that the caller still waits; None for no bound.
    """

    rollout: str
    request: pb.JudgeRequest
    key: str
    code: CodeJudge
    frames: Callable[[renderer_pb.RenderFramesRequest], Awaitable[renderer_pb.RenderFramesResponse]]
    converse: Callable[[agent_pb.Task, str], Awaitable[agent_pb.TaskResult]]
    left: Callable[[], float | None]

    def tools(self) -> Mapping[str, Tool]:
        """By name."""
        return {"ask_video": self.ask_video, "run_check": self.run_check}

    async def ask_video(self, call: str, arguments: Mapping[str, Any]) -> str:
        """An answer from a window of the episode, with the moments that were looked at.

        :raises InvalidArgument: for a window that is none.
        """
        question = str(arguments["question"])
        start, end, fps = (float(arguments[name]) for name in ("start", "end", "fps"))
        if not end > start:
            raise InvalidArgument(field="end", value=end, expected=f"a second after start ({start:g})")
        wanted = renderer_pb.RenderFramesRequest(
            trajectory=self.rollout,
            fps=fps,
            start=start,
            end=end,
            max_frames=MAX_ASK_FRAMES,
            overlay=True,
            pages=True,
            clip=True,
        )
        window = hashlib.sha256(wanted.SerializeToString(deterministic=True)).hexdigest()[:12]
        wanted.prefix = frames_prefix(self.rollout, f"ask-{window}")
        taken = await self.frames(wanted)
        footage = footage_of(taken, motion_trail=False, overlay=True)
        task = agent_pb.Task(
            video_question=agent_pb.VideoQuestionTask(brief=self.request.brief, footage=footage, question=question)
        )
        try:
            answer = (await self.converse(task, f"{self.key}/ask/{call}")).video_answer
        except DressageError as error:
            if not lasting(error) or error.reason == "LLM_BUDGET_EXHAUSTED":
                raise
            raise InvalidArgument(f"nobody could answer: {error.message}", field="question") from error
        said = {
            "answer": answer.answer,
            "certain": answer.certain,
            "frames_at": [round(moment, 3) for moment in taken.times],
        }
        return json.dumps(said, ensure_ascii=False)

    async def run_check(self, call: str, arguments: Mapping[str, Any]) -> str:
        """The numbers that a check measured.

        :raises InvalidArgument: with the rule and the line, where the code fails.
        """
        measured = await self.code.measure(
            str(arguments["code"]), self.request.environment, self.rollout, timeout=self.left()
        )
        return json.dumps(measured)


def frames_prefix(rollout: str, mark: str) -> str:
    """Where a rollout's frames are kept, beside the rollouts."""
    stem = rollout.removesuffix(".npz")
    folder, slash, name = stem.rpartition(_ROLLOUTS)
    return f"{folder}{_FRAMES}{name}/{mark}" if slash else f"{stem}-frames/{mark}"


def footage_of(frames: renderer_pb.RenderFramesResponse, *, motion_trail: bool, overlay: bool) -> agent_pb.Footage:
    """The pictures as a model is shown them."""
    return agent_pb.Footage(
        pages=frames.pages,
        frames=frames.frames,
        clip=frames.clip,
        times=frames.times,
        fps=frames.fps,
        start=frames.start,
        end=frames.end,
        episode_seconds=frames.episode_seconds,
        motion_trail=motion_trail,
        overlay=overlay,
    )
