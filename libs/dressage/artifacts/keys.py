"""Validation of artifact keys, so that no key refers to a file outside the store."""

from __future__ import annotations

import re

from dressage.errors import InvalidArgument

MAX_KEY_LENGTH = 500
"""Maximum length of a key in characters."""

_SEGMENT = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:=+@-]*\Z")
_EXPECTED = (
    "segments of letters, digits and '_.:=+@-' joined by '/', none of which begins with a dot, "
    f"at most {MAX_KEY_LENGTH} characters"
)


def check_key(key: str) -> str:
    """Return the key if it is valid.

    :param key: such as ``sessions/s-1/iterations/1/reward.py``.
    :raises InvalidArgument: if it is empty, absolute, too long, or has a segment that is empty, begins with a
        dot (which rules out ``..``) or holds other characters.
    """
    if not key or len(key) > MAX_KEY_LENGTH or not all(_SEGMENT.match(part) for part in key.split("/")):
        raise InvalidArgument(field="key", value=key, expected=_EXPECTED, reason="INVALID_ARTIFACT_KEY")
    return key


def check_prefix(prefix: str) -> str:
    """Return the prefix if it is valid: empty, a key, a key with a trailing slash, or the beginning of a key.

    :raises InvalidArgument: otherwise.
    """
    if prefix:
        check_key(prefix[:-1] if prefix.endswith("/") else prefix)
    return prefix


def check_folder(prefix: str) -> str:
    """Return the prefix if it is a key with a trailing slash.

    :raises InvalidArgument: otherwise.
    """
    if not check_prefix(prefix).endswith("/"):
        raise InvalidArgument(field="prefix", value=prefix, expected="a prefix with a trailing slash")
    return prefix
