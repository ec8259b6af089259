"""Run tokens: what a trainer shows to be heard. HMAC-SHA256 over run, attempt and expiry."""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
from pathlib import Path

from dressage.errors import Unauthenticated

_SECRET_BYTES = 32


class RunTokens:
    """Makes and checks run tokens.

    :param secret: at least 16 bytes.
    """

    def __init__(self, secret: bytes) -> None:
        if len(secret) < 16:
            raise ValueError("a run token's secret needs at least 16 bytes")
        self._secret = secret

    def make(self, run: str, attempt: int, *, expiry: int) -> str:
        """The token of one attempt.

        :param expiry: seconds since the epoch until which it is good.
        """
        return f"{expiry}.{self._sign(run, attempt, expiry)}"

    def check(self, token: str, run: str, attempt: int, *, now: float) -> None:
        """Accepts the token or says that it is wrong, without saying what would be right.

        :param now: seconds since the epoch.
        :raises Unauthenticated: when it was made for another run or attempt, has expired, or is no token.
        """
        expiry, _, signature = token.partition(".")
        good = expiry.isascii() and expiry.isdigit() and len(expiry) <= 15
        expected = self._sign(run, attempt, int(expiry) if good else 0)
        if not hmac.compare_digest(signature.encode(), expected.encode()) or not good:
            raise Unauthenticated("the run token is not of this run and attempt", reason="RUN_TOKEN_WRONG")
        if now > int(expiry):
            raise Unauthenticated("the run token has expired", reason="RUN_TOKEN_EXPIRED")

    def _sign(self, run: str, attempt: int, expiry: int) -> str:
        return hmac.new(self._secret, f"{run}|{attempt}|{expiry}".encode(), hashlib.sha256).hexdigest()


def fresh_secret() -> bytes:
    """A new secret."""
    return secrets.token_bytes(_SECRET_BYTES)


def secret_of(folder: Path) -> bytes:
    """The secret kept in a folder, made on first use, readable by its owner only."""
    path = folder / "run_token.secret"
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return path.read_bytes()
    with os.fdopen(descriptor, "wb") as file:
        file.write(fresh_secret())
        file.flush()
        os.fsync(file.fileno())
    return path.read_bytes()
