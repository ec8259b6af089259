"""The page: files built by `make console`, compressed beforehand.

Files under `assets/` have a hash in their name and are cached for ever; the page itself is sent anew each time, with a
nonce for the styles that its component library adds. All other paths are the page's own, so that a link opens where it
points to. Without a build, as in an installation from source, a plain page states how to get one.
"""

from __future__ import annotations

import mimetypes
import secrets
from dataclasses import dataclass
from pathlib import Path

from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.routing import Route

FOLDER = Path(__file__).parent / "static"
"""Where the build puts its files; git ignores it, the wheel contains it."""

NONCE = "__DRESSAGE_NONCE__"
_ENCODINGS = (("br", ".br"), ("gzip", ".gz"))
_IMMUTABLE = "public, max-age=31536000, immutable"

_SCRIPT_POLICY = "default-src 'none'; script-src 'self'; connect-src 'self'"
_WASM_POLICY = "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; connect-src 'self'"
_WASM_WORKER = "assets/mujoco-worker-"
"""The only script that may compile WebAssembly."""

_SELF = "'self'"

_NOT_BUILT = """<!doctype html><html lang="en"><meta charset="utf-8"><title>Dressage</title>
<h1>Dressage</h1><p>This installation has no built page. Build it with <code>make console</code> and reload.</p>
<p>The API is served: see <code>docs/console.md</code>.</p></html>"""


def page_policy(nonce: str, provider: str = "") -> str:
    """The Content-Security-Policy of the page: nothing from elsewhere, no inline script, styles only with the nonce.

    :param provider: origin of the identity provider, the only other place that the page may connect to; empty: none.
    """
    return (
        f"default-src 'none'; script-src 'self'; style-src 'self' 'nonce-{nonce}'; img-src 'self' data:; font-src 'self'; "
        f"media-src 'self'; connect-src {' '.join(filter(None, (_SELF, provider)))}; worker-src 'self'; manifest-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )


@dataclass(frozen=True)
class _File:
    content_type: str
    bodies: dict[str, bytes]
    """By content encoding; `identity` is always there."""


class Assets:
    """The built files, in memory: they are small, and no request reaches the file system.

    :param provider: see `page_policy`.
    """

    def __init__(self, folder: Path = FOLDER, *, provider: str = "") -> None:
        self._files = _load(folder)
        self._provider = provider

    @property
    def has_page(self) -> bool:
        """Whether there is a page."""
        return "index.html" in self._files

    def routes(self) -> list[Route]:
        """All paths that nothing else serves."""
        return [Route("/{path:path}", self._serve, methods=["GET", "HEAD"])]

    async def _serve(self, request: Request) -> Response:
        path = request.path_params["path"]
        file = self._files.get(path)
        if file is None or path == "index.html":
            if path.startswith("assets/") or ("." in path and "/" not in path and path != "index.html"):
                return PlainTextResponse("not found", 404)
            return self._page()
        accepted = {part.partition(";")[0].strip() for part in request.headers.get("accept-encoding", "").split(",")}
        encoding = next((name for name, _ in _ENCODINGS if name in accepted and name in file.bodies), "identity")
        headers = {
            "content-type": file.content_type,
            "cache-control": _IMMUTABLE if path.startswith("assets/") else "no-cache",
            "vary": "accept-encoding",
            # A worker obeys the policy of its own script, not that of the page.
            "content-security-policy": _WASM_POLICY if path.startswith(_WASM_WORKER) else _SCRIPT_POLICY,
        }
        if encoding != "identity":
            headers["content-encoding"] = encoding
        return Response(file.bodies[encoding], headers=headers)

    def _page(self) -> Response:
        nonce = secrets.token_urlsafe(18)
        headers = {"content-security-policy": page_policy(nonce, self._provider), "cache-control": "no-store"}
        if not self.has_page:
            return HTMLResponse(_NOT_BUILT, headers=headers)
        return HTMLResponse(
            self._files["index.html"].bodies["identity"].decode().replace(NONCE, nonce), headers=headers
        )


def _load(folder: Path) -> dict[str, _File]:
    files: dict[str, _File] = {}
    suffixes = tuple(suffix for _, suffix in _ENCODINGS)
    for path in sorted(folder.rglob("*")) if folder.is_dir() else ():
        if not path.is_file() or path.suffix in suffixes:
            continue
        kind = mimetypes.guess_type(path.name)[0] or "application/octet-stream"
        bodies = {"identity": path.read_bytes()}
        for name, suffix in _ENCODINGS:
            packed = path.with_name(path.name + suffix)
            if packed.is_file():
                bodies[name] = packed.read_bytes()
        charset = "; charset=utf-8" if kind.startswith("text/") else ""
        files[path.relative_to(folder).as_posix()] = _File(kind + charset, bodies)
    return files
