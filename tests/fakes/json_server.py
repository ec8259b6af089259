"""An HTTP server that returns scripted JSON bodies in order and records the requests, for provider APIs other than OpenAI's."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class JsonServer:
    """The server, with its own thread; a context manager.

    :ivar requests: path, headers with lower-case names, and body of each request.
    """

    def __init__(self, bodies: Iterable[dict[str, Any]]) -> None:
        self.requests: list[tuple[str, dict[str, str], dict[str, Any]]] = []
        self._bodies = list(bodies)
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._thread = threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)

    @property
    def url(self) -> str:
        """Its address."""
        return f"http://127.0.0.1:{self._http.server_address[1]}"

    def take(self) -> dict[str, Any]:
        """Return the next body."""
        return self._bodies.pop(0)

    def __enter__(self) -> JsonServer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._http.shutdown()
        self._http.server_close()
        self._thread.join(5)


def _handler(server: JsonServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            server.requests.append((self.path, {k.lower(): v for k, v in self.headers.items()}, body))
            data = json.dumps(server.take()).encode()
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: Any) -> None:
            pass

    return Handler
