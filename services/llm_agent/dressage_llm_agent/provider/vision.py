"""Vision support of models, and the form in which they are sent images."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, Literal

from dressage.contracts.footage import MAX_FPS

from dressage_llm_agent.provider.base import Attachment

Dialect = Literal["video", "video_url", "grid", "frames"]
"""How a model is sent an episode: a clip as a file, a clip by URL, pages of numbered frames, single frames."""

VISION_MODELS = ("*llava*", "*qwen*vl*", "*internvl*", "*pixtral*", "*-vision*")
"""Name patterns of vision models that may be missing in litellm's tables."""

_VIDEO_PROVIDERS = frozenset({"gemini", "vertex_ai"})


@dataclass(frozen=True)
class Vision:
    """The operator's configuration of vision support.

    :param models: name patterns of further vision models.
    :param dialects: dialects by name pattern; the first match applies.
    """

    models: Sequence[str] = VISION_MODELS
    dialects: Mapping[str, Dialect] = field(default_factory=dict)

    def is_vision_model(self, model: str) -> bool:
        """Return whether a model matches one of the configured patterns."""
        return any(fnmatchcase(model.lower(), pattern.lower()) for pattern in self.models)

    def dialect(self, model: str, *, supports_video: bool) -> Dialect:
        """Return how a model is sent an episode: by default as a clip if it supports video, otherwise as numbered pages."""
        for pattern, dialect in self.dialects.items():
            if fnmatchcase(model.lower(), pattern.lower()):
                return dialect
        return "video" if supports_video else "grid"


def vision_support(litellm: Any, model: str, vision: Vision) -> tuple[bool, bool]:
    """Return whether a model supports images, and whether it supports video as a file."""
    try:
        images, provider = bool(litellm.supports_vision(model)), litellm.get_llm_provider(model)[1]
        # litellm's tables lack the mark of some models; all of Gemini's that take images take video as well.
        marked = bool(litellm.get_model_info(model).get("supports_video_input"))
        video = provider in _VIDEO_PROVIDERS and (marked or (images and "gemini" in model.lower()))
    except Exception:
        # litellm raises for models that are not in its tables.
        images, video = False, False
    return images or vision.is_vision_model(model), video


def to_part(attachment: Attachment) -> dict[str, Any]:
    """Return an attachment as a part of a message's content, in the form that litellm translates for each provider."""
    url = f"data:{attachment.mime};base64,{base64.b64encode(attachment.data).decode()}"
    if attachment.kind == "video":
        # Gemini samples a clip once a second unless the request names another rate; `detail` is its media resolution.
        file = {"file_data": url, "format": attachment.mime, "detail": "high"}
        metadata = {"video_metadata": {"fps": min(attachment.fps, MAX_FPS)}} if attachment.fps else {}
        return {"type": "file", "file": file | metadata}
    if attachment.kind == "video_url":
        return {"type": "video_url", "video_url": {"url": url}}
    return {"type": "image_url", "image_url": {"url": url}}
