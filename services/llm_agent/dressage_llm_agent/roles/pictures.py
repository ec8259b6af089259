"""Which stored pictures go with a message, by how the model is shown them."""

from __future__ import annotations

from dressage.errors import FailedPrecondition

from dressage_llm_agent.provider.base import Attachment
from dressage_llm_agent.tasks import Footage

_PNG, _MP4 = "image/png", "video/mp4"


def attachments(footage: Footage) -> tuple[Attachment, ...]:
    """The attachments of a footage in its dialect, not loaded yet.

    :raises FailedPrecondition: ``FOOTAGE_MISSING`` where the pictures were not taken in that form.
    """
    found: tuple[Attachment, ...]
    match footage.dialect:
        case "video" | "video_url" as kind:
            found = (Attachment(kind, footage.clip, _MP4),) if footage.clip else ()
        case "frames":
            found = tuple(Attachment("image", key, _PNG) for key in footage.frames)
        case "grid":
            found = tuple(Attachment("image", key, _PNG) for key in footage.pages)
    if not found:
        message = (
            f"the footage holds nothing for a model that is shown {footage.dialect}; have it rendered in that form"
        )
        raise FailedPrecondition(message, reason="FOOTAGE_MISSING", metadata={"dialect": footage.dialect})
    return found
