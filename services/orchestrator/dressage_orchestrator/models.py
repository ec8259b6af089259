"""Names of models that are not language models."""

from __future__ import annotations

TEMPLATE = "template/v1"
"""The built-in author."""
RECORDED = "recorded/"
"""Prefix of recorded sessions, which replay the replies of a model."""
USER = "user"
"""Author of proposals by people."""


def is_language_model(model: str) -> bool:
    """Whether a provider is called: not for the built-in author and recorded replies."""
    return model not in ("", TEMPLATE) and not model.startswith(RECORDED)
