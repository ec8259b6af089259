"""Signed tokens of an identity provider: a real HTTP server with keys and a discovery document."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import jwt
import pytest
import structlog
from cryptography.hazmat.primitives.asymmetric import rsa
from dressage.errors import Unavailable
from dressage.serving.access import Principal, Role
from dressage_orchestrator.principals import Principals
from dressage_orchestrator.settings import Settings


class Provider:
    """An identity provider: keys over HTTP, and tokens signed with them."""

    def __init__(self) -> None:
        self.keys = {"k1": rsa.generate_private_key(public_exponent=65537, key_size=2048)}
        self.requests = 0
        self.paths: list[str] = []
        self.body = b""
        self.pause = 0.0
        self.issuer = ""
        provider = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                provider.requests += 1
                provider.paths.append(self.path)
                if self.path.startswith("/.well-known/"):
                    return self.respond(json.dumps({"issuer": provider.issuer, "jwks_uri": provider.url}).encode())
                keys = [
                    {**jwt.algorithms.RSAAlgorithm.to_jwk(key.public_key(), as_dict=True), "kid": kid, "use": "sig"}
                    for kid, key in provider.keys.items()
                ]
                self.respond(provider.body or json.dumps({"keys": keys}).encode())

            def respond(self, body: bytes) -> None:
                self.send_response(200)
                self.end_headers()
                with contextlib.suppress(OSError):  # a caller that does not wait
                    for start in range(0, len(body), 20 if provider.pause else len(body)):
                        self.wfile.write(body[start : start + 20] if provider.pause else body)
                        time.sleep(provider.pause)

            def log_message(self, *_: Any) -> None:
                pass

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.base = self.issuer = f"http://127.0.0.1:{self.server.server_port}"
        self.url = f"{self.base}/keys"

    def token(self, kid: str = "k1", key: Any = None, algorithm: str = "RS256", **claims: Any) -> str:
        now = int(time.time())
        values = {"iss": "https://id.example.org", "aud": "dressage", "sub": "1234", "exp": now + 300, **claims}
        values = {name: value for name, value in values.items() if value is not None}
        return jwt.encode(values, key or self.keys[kid], algorithm=algorithm, headers={"kid": kid})


@pytest.fixture
def provider() -> Iterator[Provider]:
    provider = Provider()
    yield provider
    provider.server.shutdown()
    provider.server.server_close()


def with_provider(provider: Provider, folder: Path, clock: Any = time.monotonic, **more: Any) -> Any:
    options = {"oidc_issuer": "https://id.example.org", "oidc_audience": "dressage", "oidc_jwks_url": provider.url}
    authenticate = Principals(Settings(data_dir=folder, **{**options, **more}), clock=clock).authenticate
    assert authenticate is not None
    return authenticate


async def test_signed_tokens_are_accepted_with_their_role(provider: Provider, tmp_path: Path):
    authenticate = with_provider(provider, tmp_path)
    for claim, role in (("user", Role.USER), (["viewer", "admin", "other"], Role.ADMIN), ("viewer", Role.VIEWER)):
        assert await authenticate(provider.token(dressage_role=claim)) == Principal("oidc:1234", role)
    assert await authenticate(provider.token()) is None, "no role, and no default"
    by_default = with_provider(provider, tmp_path, oidc_default_role="viewer")
    assert await by_default(provider.token()) == Principal("oidc:1234", Role.VIEWER)


async def test_other_signed_tokens_are_refused(provider: Provider, tmp_path: Path):
    authenticate = with_provider(provider, tmp_path, oidc_default_role="user")
    stranger = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    wrong: list[dict[str, Any]] = [
        {"iss": "https://other.example.org"},
        {"aud": "another"},
        {"exp": int(time.time()) - 3600},
        {"exp": None},
        {"sub": None},
        {"key": stranger},
        {"key": "a shared secret of at least 32 bytes", "algorithm": "HS256"},
    ]
    assert await authenticate(provider.token()) is not None
    for claims in wrong:
        assert await authenticate(provider.token(**claims)) is None, claims
    none = jwt.encode({"iss": "https://id.example.org", "aud": "dressage", "sub": "1"}, "", algorithm="none")
    for token in (none, "a.b.c", "..", provider.token()[:-4] + "AAAA"):
        assert await authenticate(token) is None, token


async def test_new_keys_are_fetched_but_not_for_every_unknown_one(provider: Provider, tmp_path: Path):
    now = [100.0]
    authenticate = with_provider(provider, tmp_path, lambda: now[0], oidc_default_role="user")
    assert await authenticate(provider.token()) is not None
    provider.keys["k2"] = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    for _ in range(20):
        assert await authenticate(provider.token("k2")) is None
    assert provider.requests == 1
    now[0] += 11
    assert await authenticate(provider.token("k2")) is not None and provider.requests == 2
    del provider.keys["k1"]
    now[0] += 301
    assert await authenticate(provider.token("k2")) is not None
    unsigned = provider.token("k2").split(".")
    assert await authenticate(".".join([unsigned[0], unsigned[1], ""])) is None


def discovered(provider: Provider, folder: Path, clock: Any = time.monotonic) -> Any:
    return with_provider(provider, folder, clock, oidc_issuer=provider.base, oidc_jwks_url="", oidc_default_role="user")


async def test_the_provider_states_where_its_keys_are(provider: Provider, tmp_path: Path):
    authenticate = discovered(provider, tmp_path)
    for _ in range(3):
        assert await authenticate(provider.token(iss=provider.base)) == Principal("oidc:1234", Role.USER)
    assert provider.paths == ["/.well-known/openid-configuration", "/keys"], "both are kept"
    assert await authenticate(provider.token()) is None, "of another issuer"


async def test_the_discovery_document_of_another_issuer_is_refused(provider: Provider, tmp_path: Path):
    provider.issuer = "https://another.example.org"
    with structlog.testing.capture_logs() as logs, pytest.raises(Unavailable):
        await discovered(provider, tmp_path)(provider.token(iss=provider.base))
    assert "expected 'http://127.0.0.1" in logs[0]["error"]


@pytest.mark.parametrize("body", [b"[]", b"{", b"{}", b'{"keys": [' + b"0, " * 100_000 + b"0]}", b'{"keys": 3}'])
async def test_unusable_keys_of_the_provider_are_refused(body: bytes, provider: Provider, tmp_path: Path):
    provider.body = body
    with pytest.raises(Unavailable):
        await with_provider(provider, tmp_path)(provider.token())


async def test_a_slow_provider_and_an_absent_one_end_at_a_deadline(
    provider: Provider, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("dressage_orchestrator.oidc._PROVIDER_SECONDS", 0.5)
    now = [100.0]
    authenticate = with_provider(provider, tmp_path, lambda: now[0], oidc_default_role="user")
    assert await authenticate(provider.token()) is not None
    provider.pause = 0.1  # each part of the answer arrives before a timeout of the socket
    for later, known in ((301, True), (3601, False)):
        now[0], began = 100.0 + later, time.monotonic()
        if known:
            assert await authenticate(provider.token()) is not None, "known keys stay valid"
        else:
            with pytest.raises(Unavailable):
                await authenticate(provider.token())
        assert time.monotonic() - began < 3
