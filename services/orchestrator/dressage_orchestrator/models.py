"""Names of models that are no language models."""

from __future__ import annotations

TEMPLATE = "template/v1"
"""The built-in author."""
RECORDED = "recorded/"
"""Begins the names of recorded sessions that stand for models."""
USER = "user"
"""The author of what a person wrote."""


def is_language_model(model: str) -> bool:
    """Whether a provider is asked, and paid: not for the built-in author's and for recorded replies."""
    return model not in ("", TEMPLATE) and not model.startswith(RECORDED)
