"""Whether a model can see, and how pictures are shown to it."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

from dressage_llm_agent.provider.base import Attachment
from dressage_llm_agent.tasks import Dialect

SEEING = ("*llava*", "*qwen*vl*", "*internvl*", "*pixtral*", "*-vision*")
"""Models by name pattern that see although litellm's tables may not say so."""

_WATCHING_PROVIDERS = frozenset({"gemini", "vertex_ai"})


@dataclass(frozen=True)
class Vision:
    """What the operator says about models and pictures.

    :param models: patterns of models that see.
    :param dialects: how models are shown pictures, by pattern; the first that matches.
    """

    models: Sequence[str] = SEEING
    dialects: Mapping[str, Dialect] = field(default_factory=dict)

    def sees(self, model: str, known: bool) -> bool:
        """Whether a model sees.

        :param known: what litellm's tables say.
        """
        return known or any(fnmatchcase(model.lower(), pattern.lower()) for pattern in self.models)

    def dialect(self, model: str, *, supports_video: bool) -> Dialect:
        """How a model is shown an episode: those that watch get a clip, all others numbered pages."""
        for pattern, dialect in self.dialects.items():
            if fnmatchcase(model.lower(), pattern.lower()):
                return dialect
        return "video" if supports_video else "grid"


def describe_sight(litellm: Any, model: str, vision: Vision) -> tuple[bool, bool]:
    """Whether a model takes pictures, and whether it takes video as a file."""
    try:
        known, provider = bool(litellm.supports_vision(model)), litellm.get_llm_provider(model)[1]
        watches = bool(litellm.get_model_info(model).get("supports_video_input")) and provider in _WATCHING_PROVIDERS
    except Exception:
        # litellm raises for models that its tables do not hold.
        known, watches = False, False
    return vision.sees(model, known), watches


def to_part(attachment: Attachment) -> dict[str, Any]:
    """An attachment as a part of a message's content, in the form that litellm translates for each provider."""
    url = f"data:{attachment.mime};base64,{base64.b64encode(attachment.data).decode()}"
    if attachment.kind == "video":
        return {"type": "file", "file": {"file_data": url, "format": attachment.mime}}
    if attachment.kind == "video_url":
        return {"type": "video_url", "video_url": {"url": url}}
    return {"type": "image_url", "image_url": {"url": url}}
