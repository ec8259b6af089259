"""The attachments and template values of an episode's video, according to the dialect of the model."""

from __future__ import annotations

from typing import Any

from dressage.api.internal.v1 import agent_service_pb2 as agent_pb
from dressage.errors import FailedPrecondition

from dressage_llm_agent.provider.base import Attachment
from dressage_llm_agent.tasks import Dialect

_PNG, _MP4 = "image/png", "video/mp4"


def attachments(video: agent_pb.EpisodeVideo, dialect: Dialect) -> tuple[Attachment, ...]:
    """Return the attachments that show a video, without their contents.

    :raises FailedPrecondition: ``VIDEO_FORMAT_MISSING`` if the video lacks what the dialect needs.
    """
    shown: tuple[Attachment, ...]
    match dialect:
        case "video" | "video_url" as kind:
            shown = (Attachment(kind, video.clip, _MP4),) if video.clip else ()
        case "frames":
            shown = tuple(Attachment("image", key, _PNG) for key in video.frames)
        case "grid":
            shown = tuple(Attachment("image", key, _PNG) for key in video.pages)
    if not shown:
        needed = {"frames": "frames", "grid": "pages"}.get(dialect, "clip")
        message = f"video.{needed}: empty, but the model's dialect is {dialect}; render the frames with {needed}"
        raise FailedPrecondition(message, reason="VIDEO_FORMAT_MISSING", metadata={"dialect": dialect})
    return shown


def template_values(video: agent_pb.EpisodeVideo, dialect: Dialect) -> dict[str, Any]:
    """Return the values that ``shared/footage.j2`` refers to: the video's fields and the dialect."""
    return {field.name: getattr(video, field.name) for field in video.DESCRIPTOR.fields} | {"dialect": dialect}
