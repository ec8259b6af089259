"""Pagination (AIP-158) with opaque tokens, which contain a position and a digest of the request."""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
from typing import Any

from dressage.errors import InvalidArgument


def page_size(requested: int, *, default: int = 50, most: int = 1000) -> int:
    """Number of entries of a page.

    :param requested: page size of the request; 0 means the default.
    """
    return min(requested, most) if requested > 0 else default


def encode(position: Any, *question: object) -> str:
    """Encode a page token.

    :param position: JSON value after which the next page begins.
    :param question: the other fields of the request; the next request must have the same values.
    """
    text = json.dumps([position, _digest(question)], separators=(",", ":"))
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def decode(token: str, *question: object) -> Any:
    """Decode a page token into a position; None for an empty token.

    :raises InvalidArgument: when the token is malformed or belongs to another request.
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
