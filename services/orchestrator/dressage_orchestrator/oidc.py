"""Signed tokens of an identity provider (OpenID Connect), verified with the keys that the provider publishes.

The address of the keys is a setting, or the provider's discovery document states it. Both documents are requested again when
the keys are old or a token names an unknown one, at most once in ten seconds, with a deadline and a limit of bytes. A provider
that does not answer leaves the known keys valid for an hour.

`jwt.PyJWKClient` has none of this: neither a deadline for a whole answer nor a limit of its bytes, no keys while the provider
is away, and then a request for each unknown key.
"""

from __future__ import annotations

import hashlib
import json
import threading
import time
import urllib.request
from collections.abc import Callable
from typing import Any

import jwt
import structlog
from dressage.errors import FailedPrecondition, Unavailable
from dressage.serving.access import Principal, Role

from dressage_orchestrator.settings import Settings

_ALGORITHMS = ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"]
"""Asymmetric ones: a secret shared with the provider would let this server sign tokens."""

_DISCOVERY = "/.well-known/openid-configuration"
_KEYS_SECONDS = 300.0
_STALE_SECONDS = 3600.0
_REFRESH_SECONDS = 10.0
"""Least time between two requests for keys, so that tokens with unknown keys do not cause a request each."""

_PROVIDER_SECONDS = 5.0
_MAX_BYTES = 256 * 1024
_MAX_KEYS = 64
_MAX_SUBJECT = 180
_LEEWAY_SECONDS = 30.0


class SignedTokens:
    """Verifies signed tokens.

    :raises FailedPrecondition: for settings without an audience, or with an issuer that is no address.
    """

    def __init__(self, settings: Settings, clock: Callable[[], float] = time.monotonic) -> None:
        self._issuer, self._audience = settings.oidc_issuer, settings.oidc_audience
        if not self._audience:
            raise FailedPrecondition("setting OIDC_ISSUER needs OIDC_AUDIENCE", reason="BAD_PRINCIPALS")
        if not settings.oidc_jwks_url and not self._issuer.startswith(("https://", "http://")):
            message = f"OIDC_ISSUER: not an address (got {self._issuer!r}); expected https://…, or set OIDC_JWKS_URL"
            raise FailedPrecondition(message, reason="BAD_PRINCIPALS")
        self._url, self._role_claim = settings.oidc_jwks_url, settings.oidc_role_claim
        self._default_role = settings.oidc_default_role
        self._clock = clock
        self._lock = threading.Lock()
        self._requested, self._received = -_REFRESH_SECONDS, float("-inf")
        self._keys: dict[str | None, jwt.PyJWK] = {}
        self._log = structlog.get_logger("dressage.principals")

    def verify(self, token: str) -> Principal | None:
        """Return the principal of a valid token; None for an invalid one. Blocks while keys are requested.

        :raises Unavailable: if there are no keys that are recent enough.
        """
        try:
            key = self._key(jwt.get_unverified_header(token).get("kid"))
            if key is None:
                return None
            claims = jwt.decode(
                token,
                key,
                algorithms=_ALGORITHMS,
                audience=self._audience,
                issuer=self._issuer,
                leeway=_LEEWAY_SECONDS,
                options={"require": ["exp", "iss", "aud", "sub"]},
            )
        except jwt.PyJWTError:
            return None
        role = self._role(claims.get(self._role_claim))
        # The prefix keeps a provider's names apart from those of the file.
        return None if role is None else Principal(f"oidc:{_bounded(str(claims['sub']))}", role)

    def _role(self, claim: Any) -> Role | None:
        """The highest role that a claim lists; the default role without one."""
        values = claim if isinstance(claim, list) else str(claim or "").split()
        roles = [Role[str(entry).upper()] for entry in values if str(entry).upper() in Role.__members__]
        default = self._default_role
        return max(roles) if roles else Role[default.upper()] if default else None

    def _key(self, ident: str | None) -> jwt.PyJWK | None:
        with self._lock:
            now = self._clock()
            old = now - self._received > _KEYS_SECONDS or ident not in self._keys
            if old and now - self._requested >= _REFRESH_SECONDS:
                self._requested = now
                try:
                    self._keys = self._fetch()
                    self._received = now
                except (jwt.PyJWTError, OSError, ValueError) as error:
                    self._log.error("the identity provider's keys cannot be read", error=str(error))
            if not self._keys or now - self._received > _STALE_SECONDS:
                raise Unavailable("the identity provider's keys cannot be read; try again", reason="OIDC_UNAVAILABLE")
            return self._keys.get(ident)

    def _fetch(self) -> dict[str | None, jwt.PyJWK]:
        deadline = time.monotonic() + _PROVIDER_SECONDS
        document = _get(self._url or self._discover(deadline), deadline)
        keys = document.get("keys")
        if not isinstance(keys, list) or len(keys) > _MAX_KEYS:
            raise ValueError(f"keys: expected a list of at most {_MAX_KEYS} keys")
        return {key.key_id: key for key in jwt.PyJWKSet.from_dict(document).keys if key.public_key_use in (None, "sig")}

    def _discover(self, deadline: float) -> str:
        """Return the address of the keys according to the provider's discovery document.

        :raises ValueError: for a document of another issuer, which would let its author sign tokens for this one.
        """
        document = _get(self._issuer.rstrip("/") + _DISCOVERY, deadline)
        if document.get("issuer") != self._issuer:
            raise ValueError(
                f"issuer: is {document.get('issuer')!r} in the discovery document; expected {self._issuer!r}"
            )
        url = document.get("jwks_uri")
        schemes = ("https://",) if self._issuer.startswith("https://") else ("https://", "http://")
        if not isinstance(url, str) or not url.startswith(schemes):
            raise ValueError(f"jwks_uri: is {url!r} in the discovery document; expected {' or '.join(schemes)}…")
        return url


def _bounded(subject: str) -> str:
    """Return a subject in at most 180 characters; two subjects never become one."""
    if len(subject) <= _MAX_SUBJECT:
        return subject
    digest = hashlib.sha256(subject.encode()).hexdigest()
    return f"{subject[: _MAX_SUBJECT - len(digest) - 1]}#{digest}"


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """A redirect could lead from https to anything."""

    def redirect_request(self, *_: Any) -> None:
        return None


def _get(url: str, deadline: float) -> dict[str, Any]:
    """Read a JSON object.

    :param deadline: on the monotonic clock, for the whole answer: a slow provider must not occupy a thread.
    :raises OSError: when the provider does not answer in time, or with an error.
    :raises ValueError: for an answer that is no JSON object, or too long.
    """
    opener = urllib.request.build_opener(_NoRedirects)
    seconds = deadline - time.monotonic()
    if seconds <= 0:
        raise TimeoutError(f"{url}: no answer in {_PROVIDER_SECONDS:g} s")
    body = b""
    with opener.open(urllib.request.Request(url, headers={"Accept": "application/json"}), timeout=seconds) as response:
        while chunk := response.read1(65_536):
            body += chunk
            if len(body) > _MAX_BYTES:
                raise ValueError(f"{url}: the answer is longer than {_MAX_BYTES} bytes")
            if time.monotonic() > deadline:
                raise TimeoutError(f"{url}: no complete answer in {_PROVIDER_SECONDS:g} s")
    document = json.loads(body)
    if not isinstance(document, dict):
        raise ValueError(f"{url}: the answer is not a JSON object")
    return document
