"""The attachments and template values of an episode's videos, according to the dialect of the model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dressage.api.internal.v1 import agent_service_pb2 as agent_pb
from dressage.errors import FailedPrecondition

from dressage_llm_agent.provider.base import Attachment
from dressage_llm_agent.provider.vision import Dialect

_PNG, _MP4 = "image/png", "video/mp4"


def attachments(videos: Sequence[agent_pb.EpisodeVideo], dialect: Dialect) -> tuple[Attachment, ...]:
    """Return the attachments that show videos, in their order and without their contents.

    :raises FailedPrecondition: ``VIDEO_FORMAT_MISSING`` if a video lacks what the dialect needs.
    """
    return tuple(attachment for video in videos for attachment in _attachments(video, dialect))


def _attachments(video: agent_pb.EpisodeVideo, dialect: Dialect) -> tuple[Attachment, ...]:
    attachments: tuple[Attachment, ...]
    match dialect:
        case "video" | "video_url" as kind:
            attachments = (Attachment(kind, video.clip, _MP4, fps=video.fps),) if video.clip else ()
        case "frames":
            attachments = tuple(Attachment("image", key, _PNG) for key in video.frames)
        case "grid":
            attachments = tuple(Attachment("image", key, _PNG) for key in video.pages)
    if not attachments:
        needed = {"frames": "frames", "grid": "pages"}.get(dialect, "clip")
        message = f"video.{needed}: empty, but the model's dialect is {dialect}; render the frames with {needed}"
        raise FailedPrecondition(message, reason="VIDEO_FORMAT_MISSING", metadata={"dialect": dialect})
    return attachments


def template_values(videos: Sequence[agent_pb.EpisodeVideo], dialect: Dialect) -> dict[str, Any]:
    """Return the values that ``shared/footage.j2`` refers to: the dialect, and each video with its frames' numbers.

    Pages and clips are numbered through all videos of the task, as they are attached.
    """
    shots, pages = [], 0
    for place, video in enumerate(videos, start=1):
        first = video.first_number or 1
        shots.append(
            {
                "video": video,
                "place": place,
                "first": first,
                "last": first + len(video.times) - 1,
                "first_page": pages + 1,
                "last_page": pages + len(video.pages),
                "step": 1 / video.fps if video.fps else 0.0,
            }
        )
        pages += len(video.pages)
    return {"dialect": dialect, "shots": shots}
