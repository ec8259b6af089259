"""Pagination (AIP-158) with opaque tokens.

A token is the position after which the next page begins, encrypted and authenticated with a key of the server. The other fields
of the request are authenticated with it. Only tokens that this installation issued for the same request are read, so that no
token reaches a query with a position of another form.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import os
from typing import Any

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from dressage.errors import InvalidArgument

_NONCE_BYTES = 12
_MOST_CHARACTERS = 4096


def page_size(requested: int, *, default: int = 50, most: int = 1000) -> int:
    """Number of entries of a page.

    :param requested: page size of the request; 0 means the default.
    """
    return min(requested, most) if requested > 0 else default


class PageTokens:
    """Encodes and decodes page tokens.

    :param secret: of the installation; all its servers read each other's tokens.
    """

    def __init__(self, secret: bytes) -> None:
        self._cipher = AESGCM(hmac.new(secret, b"page tokens", hashlib.sha256).digest())

    def encode(self, position: Any, *question: object) -> str:
        """Encode a page token.

        :param position: JSON value after which the next page begins.
        :param question: the other fields of the request; the next request must have the same values.
        """
        nonce = os.urandom(_NONCE_BYTES)
        sealed = self._cipher.encrypt(nonce, json.dumps(position).encode(), repr(question).encode())
        return base64.urlsafe_b64encode(nonce + sealed).decode().rstrip("=")

    def decode(self, token: str, *question: object) -> Any:
        """Decode a page token into a position; None for an empty token.

        :raises InvalidArgument: for what is not a token of this installation for the same request.
        """
        if not token:
            return None
        try:
            if len(token) > _MOST_CHARACTERS:
                raise ValueError("too long")
            raw = base64.urlsafe_b64decode(token + "=" * (-len(token) % 4))
            opened = self._cipher.decrypt(raw[:_NONCE_BYTES], raw[_NONCE_BYTES:], repr(question).encode())
        except (ValueError, InvalidTag):
            expected = "next_page_token of an earlier answer to the same request"
            raise InvalidArgument(field="page_token", value=token, expected=expected) from None
        return json.loads(opened)
