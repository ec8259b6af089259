"""Removes secrets from stored, logged and returned text: known values by comparison, others by their form."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

_SECRET_NAMES = ("KEY", "TOKEN", "SECRET", "PASSWORD")
# Shorter values occur in ordinary text, which would become unreadable.
_SHORTEST = 8
_LOOKS_SECRET = re.compile(
    r"\b(?:sk|pk|rk|gsk|xai|hf|ghp|glpat|AIza)[-_][A-Za-z0-9_\-]{12,}|\bAIza[A-Za-z0-9_\-]{20,}|\b[Bb]earer\s+[A-Za-z0-9_\-.=]{12,}"
)
MARK = "[redacted]"


class Redactor:
    """Replaces secrets in text with ``[redacted]``.

    :param secrets: the values; those shorter than 8 characters are ignored, since they would match words.
    """

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        # Longest first, so that a secret that contains another is replaced whole.
        self._secrets = sorted({secret for secret in secrets if len(secret) >= _SHORTEST}, key=len, reverse=True)

    @classmethod
    def from_environment(cls, environment: Mapping[str, str], *more: str) -> Redactor:
        """Return a redactor of the values of variables with names of secrets, and of ``more``."""
        named = (value for name, value in environment.items() if any(part in name.upper() for part in _SECRET_NAMES))
        return cls([*named, *more])

    def redact(self, text: str) -> str:
        """Return the text without secrets."""
        for secret in self._secrets:
            text = text.replace(secret, MARK)
        return _LOOKS_SECRET.sub(MARK, text)
