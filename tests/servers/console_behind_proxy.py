"""What a console behind a TLS reverse proxy must do, whoever runs it: on this machine, or in a cluster."""

from __future__ import annotations

import json
import re
import ssl
import struct
import time
from dataclasses import dataclass
from typing import Any

import httpx

_DEADLINE = 120.0


@dataclass(frozen=True)
class Site:
    """A console that a proxy shows.

    :param address: host:port of the proxy.
    :param host: the console's host name.
    :param authority: PEM of the authority that signed the proxy's certificate.
    :param token: of a user; `viewer`: of one who may only read.
    """

    address: str
    host: str
    authority: str
    token: str
    viewer: str

    def client(self, **headers: str) -> httpx.Client:
        """A browser's side: it names the host, and verifies the certificate for that name."""

        def name(request: httpx.Request) -> None:
            request.extensions = {**request.extensions, "sni_hostname": self.host}

        return httpx.Client(
            base_url=f"https://{self.address}",
            headers={"host": self.host, **headers},
            verify=ssl.create_default_context(cadata=self.authority),
            event_hooks={"request": [name]},
            timeout=30,
        )

    def user(self) -> httpx.Client:
        """The same with the user's token."""
        return self.client(authorization=f"Bearer {self.token}")


def call(client: httpx.Client, method: str, body: dict[str, Any], service: str = "SessionService") -> httpx.Response:
    """A Connect call in JSON."""
    return client.post(f"/dressage.v1.{service}/{method}", json=body)


def waiting_session(site: Site) -> str:
    """Start a session that waits for approval, without a trainer; its name."""
    reward = {"seeds": 1, "stepsPerMember": "2048"}
    spec = {"intent": "hop", "environment": "environments/Hopper-v5", "model": "template/v1", "reward": reward}
    with site.user() as user:
        created = call(user, "CreateSession", {"spec": {**spec, "approveBeforeEvaluation": True}})
        assert created.status_code == 200, created.text
        name = str(created.json()["name"])
        deadline = time.monotonic() + _DEADLINE
        while not call(user, "GetSession", {"name": name}).json().get("awaitingApproval"):
            assert time.monotonic() < deadline, f"{name} does not reach its approval"
            time.sleep(0.5)
    return name


def check_page(site: Site) -> None:
    """The page and its files: compressed, hashed, under a strict policy."""
    with site.client() as browser:
        page = browser.get("/sessions/any")
        assert page.status_code == 200 and page.headers["content-type"].startswith("text/html")
        assert "default-src 'none'" in page.headers["content-security-policy"]
        script = re.search(r'src="(/assets/[^"]+\.js)"', page.text)
        assert script, page.text
        asset = browser.get(script[1], headers={"accept-encoding": "gzip"})
        assert asset.status_code == 200 and asset.headers["content-encoding"] == "gzip"
        assert "immutable" in asset.headers["cache-control"] and len(asset.content) > 10_000


def check_login(site: Site) -> None:
    """Calls need a token; the login makes it a cookie for HTTPS only."""
    with site.client() as browser:
        refused = call(browser, "ListSessions", {})
        assert refused.status_code == 401 and refused.json()["code"] == "unauthenticated"
        assert browser.post("/login", json={"token": "wrong"}).status_code == 401
        answer = browser.post("/login", json={"token": site.token})
        cookie = answer.headers["set-cookie"]
        assert answer.status_code == 204 and "Secure" in cookie and "HttpOnly" in cookie, cookie
        header = {"cookie": cookie.partition(";")[0]}
        assert browser.get("/login", headers=header).json()["authenticated"] is True
        foreign = browser.post("/login", json={"token": site.token}, headers={"origin": "https://elsewhere.example"})
        assert foreign.status_code == 403


def check_viewer(site: Site, session: str) -> None:
    """A viewer reads, and changes nothing."""
    with site.client(authorization=f"Bearer {site.viewer}") as viewer:
        assert call(viewer, "GetSession", {"name": session}).status_code == 200
        for method, body in (("DeleteSession", {"name": session, "force": True}), ("CancelSession", {"name": session})):
            refused = call(viewer, method, body)
            assert refused.status_code == 403 and refused.json()["code"] == "permission_denied", refused.text


def check_stream(site: Site, session: str) -> None:
    """Events arrive while the stream is open: nothing buffers them."""
    message = json.dumps({"name": session}).encode()
    body, kind = struct.pack(">BI", 0, len(message)) + message, "application/connect+json"
    with (
        site.user() as user,
        user.stream(
            "POST", "/dressage.v1.SessionService/WatchSession", content=body, headers={"content-type": kind}
        ) as answer,
    ):
        assert answer.status_code == 200 and answer.headers["content-type"] == kind
        received = b""
        for chunk in answer.iter_raw():
            received += chunk
            if len(received) >= 5:
                flag, length = struct.unpack(">BI", received[:5])
                if len(received) >= 5 + length:
                    break
        # The session waits, so the stream does not end; what came, came at once.
        assert flag == 0 and json.loads(received[5 : 5 + length])["event"]["session"] == session


def check_artifact(site: Site, session: str) -> None:
    """An artifact in parts, by ETag, and only with a login."""
    path = f"/artifacts/{session}/iterations/1/proposal.json"
    with site.user() as user, site.client() as stranger:
        whole = user.get(path)
        assert whole.status_code == 200 and whole.json()
        part = user.get(path, headers={"range": "bytes=1-9"})
        assert part.status_code == 206 and part.content == whole.content[1:10]
        assert part.headers["content-range"] == f"bytes 1-9/{len(whole.content)}"
        assert user.get(path, headers={"if-none-match": whole.headers["etag"]}).status_code == 304
        assert stranger.get(path).status_code == 401
