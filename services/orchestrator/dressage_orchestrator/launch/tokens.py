"""Run tokens, which authenticate trainers: HMAC-SHA256 over run, attempt and expiry."""

from __future__ import annotations

import hashlib
import hmac
import os
import re
import secrets
from pathlib import Path

from dressage.errors import Unauthenticated

_SECRET_BYTES = 32
_BEGIN = re.compile(r"([0-9]{1,15})(?:\.([0-9]{1,9})-([0-9]{1,9}))?\Z", re.ASCII)


class RunTokens:
    """Issues and verifies run tokens.

    :param secret: at least 16 bytes.
    """

    def __init__(self, secret: bytes) -> None:
        if len(secret) < 16:
            raise ValueError("a run token's secret needs at least 16 bytes")
        self._secret = secret

    def make(self, run: str, attempt: int, *, expiry: int, last: int = 0) -> str:
        """Issue a token for one attempt, or for all from ``attempt`` to ``last``.

        :param expiry: end of its validity, seconds since the epoch.
        """
        attempts = f"{attempt}-{last}" if last > attempt else str(attempt)
        begin = f"{expiry}.{attempts}" if last > attempt else str(expiry)
        return f"{begin}.{self._sign(run, attempts, expiry)}"

    def check(self, token: str, run: str, attempt: int, *, now: float) -> None:
        """Verify a token. The error does not reveal the expected value.

        :param now: seconds since the epoch.
        :raises Unauthenticated: when the token is for another run or attempt, has expired or is malformed.
        """
        begin, _, signature = token.rpartition(".")
        match = _BEGIN.match(begin)
        expiry = int(match.group(1)) if match else 0
        first, last = (int(match.group(2)), int(match.group(3))) if match and match.group(2) else (attempt, attempt)
        attempts = f"{first}-{last}" if first != last else str(attempt)
        expected = self._sign(run, attempts, expiry)
        valid = match is not None and first <= attempt <= last
        # In constant time, and before the expiry: an unsigned one proves nothing.
        if not hmac.compare_digest(signature.encode(), expected.encode()) or not valid:
            raise Unauthenticated("the run token is not valid for this run and attempt", reason="RUN_TOKEN_WRONG")
        if now > expiry:
            raise Unauthenticated("the run token has expired", reason="RUN_TOKEN_EXPIRED")

    def _sign(self, run: str, attempts: str, expiry: int) -> str:
        return hmac.new(self._secret, f"{run}|{attempts}|{expiry}".encode(), hashlib.sha256).hexdigest()


def new_secret() -> bytes:
    """Generate a secret."""
    return secrets.token_bytes(_SECRET_BYTES)


def load_or_create_secret(folder: Path) -> bytes:
    """Load the secret of a folder; generate it on first use, readable only by its owner."""
    path = folder / "run_token.secret"
    try:
        # Created with its mode: a file that is restricted afterwards can be opened in between (decision 0054).
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return path.read_bytes()
    with os.fdopen(descriptor, "wb") as file:
        file.write(new_secret())
        file.flush()
        os.fsync(file.fileno())
    return path.read_bytes()
