"""Pages (AIP-158): opaque tokens that say where the next page begins and for which question."""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
from typing import Any

from dressage.errors import InvalidArgument


def page_size(asked: int, *, default: int = 50, most: int = 1000) -> int:
    """How many entries a page holds.

    :param asked: 0 means the default.
    """
    return min(asked, most) if asked > 0 else default


def encode(position: Any, *question: object) -> str:
    """A token.

    :param position: JSON that the next page begins after.
    :param question: what else the request said; the next request must say the same.
    """
    text = json.dumps([position, _digest(question)], separators=(",", ":"))
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def decode(token: str, *question: object) -> Any:
    """The position in a token; None for no token.

    :raises InvalidArgument: when it is no token of ours, or one of another question.
    """
    if not token:
        return None
    try:
        text = base64.urlsafe_b64decode(token + "=" * (-len(token) % 4))
        position, digest = json.loads(text)
    except (ValueError, binascii.Error):
        position, digest = None, None
    if digest != _digest(question) or position is None:
        expected = "next_page_token of an earlier answer to the same request"
        raise InvalidArgument(field="page_token", value=token, expected=expected)
    return position


def _digest(question: tuple[object, ...]) -> str:
    return hashlib.sha256(repr(question).encode()).hexdigest()[:12]
