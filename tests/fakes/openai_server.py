"""A scripted model provider: an HTTP server that speaks OpenAI's chat completions, tool calls and faults included.

In a test::

    with ScriptedServer([Answer("hello"), Answer(status=429, retry_after=1)]) as server:
        ...  # point the client at server.url
        assert len(server.requests) == 1
        server.assert_exhausted()

Or as a program, with a Python file that defines ``SCRIPT`` (a list of answers, or a function that makes one)::

    python tests/fakes/openai_server.py --script tests/fakes/scripts/repair_then_revise.py --port 8900

Each request takes the first answer not yet used whose ``when`` accepts it. A request that none accepts gets status 400 and is
kept in ``unexpected``: a client must not retry that, so a test fails where the script and the client part ways. A request whose
client leaves before a delayed answer is kept in ``abandoned``: it was asked and not answered.
"""

from __future__ import annotations

import argparse
import json
import runpy
import select
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Literal

HUGE_BYTES = 10 * 1024 * 1024
ENDLESS_BYTES = 512 * 1024 * 1024


@dataclass(frozen=True)
class Request:
    """A request as it came: the body, and the headers with lower-case names."""

    body: dict[str, Any]
    headers: dict[str, str]

    def pictures(self) -> list[str]:
        """Data URLs of all pictures and clips in the messages, in order."""
        parts = [
            part
            for message in self.body.get("messages", [])
            for part in (message.get("content") if isinstance(message.get("content"), list) else [])
        ]
        return [
            (part.get("image_url") or part.get("video_url") or {}).get("url", "")
            or part.get("file", {}).get("file_data", "")
            for part in parts
            if part.get("type") != "text"
        ]

    def text(self, role: str = "") -> str:
        """All text of the messages of a role (``system``, ``user``, …); of all roles if empty."""
        messages = self.body.get("messages", [])
        return "\n".join(_text(m.get("content")) for m in messages if not role or m.get("role") == role)


@dataclass(frozen=True)
class Call:
    """A tool call to make; ``arguments`` as a string is sent as it is, however malformed."""

    name: str
    arguments: dict[str, Any] | str = field(default_factory=dict)


Condition = str | Callable[[Request], bool] | None
Fault = Literal["stall", "cut", "truncate", "huge", "drip", "endless", ""]


@dataclass(frozen=True)
class Answer:
    """One answer of the script.

    :param text: content of the message.
    :param calls: tool calls of the message.
    :param when: text that must occur in the request's messages, or a predicate; None accepts all.
    :param status: HTTP status; other than 200 sends an error body.
    :param retry_after: value of the Retry-After header.
    :param fault: ``stall`` (never answers), ``cut`` (closes the connection within the body), ``truncate`` (half of the JSON,
        as if whole), ``huge`` (10 MB of text), ``drip`` (half of the body, then nothing more), ``endless`` (a body without a
        declared length that continues for half a gigabyte while the client reads).
    :param delay: seconds before it is sent. If the client closes the connection meanwhile, nothing is sent; the answer serves
        the next such request, at once.
    :param repeat: whether it may be used again and again.
    """

    text: str = ""
    calls: tuple[Call, ...] = ()
    when: Condition = None
    status: int = 200
    retry_after: float | None = None
    fault: Fault = ""
    input_tokens: int = 100
    output_tokens: int = 50
    finish_reason: str = ""
    delay: float = 0.0
    repeat: bool = False

    def accepts(self, request: Request) -> bool:
        """Whether this answer is for that request."""
        if self.when is None:
            return True
        return self.when in request.text() if isinstance(self.when, str) else self.when(request)


class ScriptedServer:
    """The server, in threads of its own; a context manager.

    :param script: answers in order.
    :param key: the API key to ask for; None takes any.
    :param host: address to listen on.
    """

    def __init__(
        self, script: Iterable[Answer], *, key: str | None = None, port: int = 0, host: str = "127.0.0.1"
    ) -> None:
        self.requests: list[Request] = []
        self.unexpected: list[Request] = []
        self.abandoned: list[Request] = []
        self.unauthorised = 0
        self.endless_bytes = 0
        self._left = list(script)
        self._key = key
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._http = ThreadingHTTPServer((host, port), _handler(self))
        self._http.daemon_threads = True
        self._thread = threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)

    @property
    def url(self) -> str:
        """What to set as the client's API base."""
        return f"http://127.0.0.1:{self._http.server_address[1]}/v1"

    def __enter__(self) -> ScriptedServer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._http.shutdown()
        self._http.server_close()
        self._thread.join(5)

    def wait(self) -> None:
        """Blocks until the process is interrupted."""
        self._stopping.wait()

    def assert_exhausted(self) -> None:
        """Fails unless every answer was used and no request was unexpected."""
        left = [answer for answer in self._left if not answer.repeat]
        assert not left, f"{len(left)} answers were not asked for; the first: {left[0]}"
        assert not self.unexpected, f"no answer for: {self.unexpected[0].text()[-500:]}"

    def counts(self) -> dict[str, int]:
        """Requests so far, those without an answer among them, and answers that wait for theirs."""
        with self._lock:
            left = sum(not answer.repeat for answer in self._left)
            return {"requests": len(self.requests), "unexpected": len(self.unexpected), "left": left}

    def take(self, request: Request) -> Answer:
        """The answer to a request; used up unless it repeats."""
        with self._lock:
            if self._key is not None and request.headers.get("authorization") != f"Bearer {self._key}":
                self.unauthorised += 1
                shown = request.headers.get("authorization", "none")
                return Answer(f"Incorrect API key provided: {shown}", status=401)
            self.requests.append(request)
            for index, answer in enumerate(self._left):
                if answer.accepts(request):
                    return answer if answer.repeat else self._left.pop(index)
            self.unexpected.append(request)
            return Answer("the script has no answer for this request", status=400)

    def give_back(self, request: Request, answer: Answer) -> None:
        """Notes that the client left before its answer; the answer serves the next such request, without a delay."""
        with self._lock:
            self.abandoned.append(request)
            if not answer.repeat:
                self._left.insert(0, replace(answer, delay=0.0))

    def stall(self) -> None:
        """Waits until the server stops."""
        self._stopping.wait(600)


def _handler(server: ScriptedServer) -> type[BaseHTTPRequestHandler]:  # noqa: C901 - a class within, of small methods
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            length = int(self.headers.get("content-length", 0))
            body = json.loads(self.rfile.read(length) or b"{}")
            if not self.path.endswith("/chat/completions"):
                self._send(404, _error(f"no such path: {self.path}", 404))
                return
            headers = {name.lower(): value for name, value in self.headers.items()}
            request = Request(body, headers)
            answer = server.take(request)
            if answer.delay and self._left_within(answer.delay):
                server.give_back(request, answer)
                self.close_connection = True
                return
            self._answer(answer, str(body.get("model", "")))

        def do_GET(self) -> None:
            self._send(200, json.dumps(server.counts()).encode())

        def _left_within(self, seconds: float) -> bool:
            """Waits so long, or until the client closes the connection; whether it did."""
            readable, _, _ = select.select([self.connection], [], [], seconds)
            try:
                return bool(readable) and not self.connection.recv(1, socket.MSG_PEEK)
            except ConnectionError:
                return True

        def _answer(self, answer: Answer, model: str) -> None:
            if answer.fault == "stall":
                server.stall()
            elif answer.fault == "endless":
                self._pour()
            elif answer.status != 200:
                extra = {} if answer.retry_after is None else {"Retry-After": f"{answer.retry_after:g}"}
                self._send(answer.status, _error(answer.text or "injected fault", answer.status), extra)
            else:
                self._complete(answer.fault, json.dumps(_completion(answer, model)).encode())

        def _complete(self, fault: Fault, data: bytes) -> None:
            half = data[: len(data) // 2]
            if fault == "truncate":
                self._send(200, half)
            elif fault == "drip":
                self._send(200, half, declared=len(data))
                server.stall()
            elif fault == "cut":
                self._send(200, half, declared=len(data))
                self.connection.shutdown(socket.SHUT_RDWR)
                self.close_connection = True
            else:
                self._send(200, data)

        def _pour(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            piece = b"x" * 65536
            try:
                for _ in range(ENDLESS_BYTES // len(piece)):
                    self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
                    server.endless_bytes += len(piece)
            except OSError:
                return  # nobody reads any more, which is what a client should come to
            finally:
                self.close_connection = True

        def _send(
            self, status: int, data: bytes, extra: dict[str, str] | None = None, declared: int | None = None
        ) -> None:
            try:
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data) if declared is None else declared))
                for name, value in (extra or {}).items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(data)
                self.wfile.flush()
            except (BrokenPipeError, ConnectionResetError):
                self.close_connection = True  # the client gave up, as faults make it do

        def log_message(self, format: str, *args: Any) -> None:
            return

    return Handler


def _completion(answer: Answer, model: str) -> dict[str, Any]:
    text = "x" * HUGE_BYTES if answer.fault == "huge" else answer.text
    message: dict[str, Any] = {"role": "assistant", "content": text or None}
    if answer.calls:
        message["tool_calls"] = [_tool_call(index, call) for index, call in enumerate(answer.calls)]
    reason = answer.finish_reason or ("tool_calls" if answer.calls else "stop")
    total = answer.input_tokens + answer.output_tokens
    return {
        "id": "chatcmpl-scripted",
        "object": "chat.completion",
        "created": 1_700_000_000,
        "model": model,
        "choices": [{"index": 0, "message": message, "finish_reason": reason}],
        "usage": {
            "prompt_tokens": answer.input_tokens,
            "completion_tokens": answer.output_tokens,
            "total_tokens": total,
        },
    }


def _tool_call(index: int, call: Call) -> dict[str, Any]:
    arguments = call.arguments if isinstance(call.arguments, str) else json.dumps(call.arguments)
    return {"id": f"call_{index}", "type": "function", "function": {"name": call.name, "arguments": arguments}}


def _error(message: str, status: int) -> bytes:
    kind = {401: "invalid_api_key", 429: "rate_limit_exceeded"}.get(status)
    return json.dumps({"error": {"message": message, "type": "scripted", "param": None, "code": kind}}).encode()


def _text(content: Any) -> str:
    if isinstance(content, list):
        return "\n".join(part.get("text", "") for part in content if isinstance(part, dict))
    return content or ""


def load_script(path: Path) -> list[Answer]:
    """The answers that a script file defines as ``SCRIPT``, a list or a function."""
    # The file imports this module by name, also when it runs as a program.
    sys.modules.setdefault("openai_server", sys.modules[__name__])
    sys.path.insert(0, str(Path(__file__).parent))
    script = runpy.run_path(str(path))["SCRIPT"]
    return list(script() if callable(script) else script)


def main() -> None:
    """Serves a script until interrupted; prints the URL first."""
    parser = argparse.ArgumentParser(description="A scripted model provider.")
    parser.add_argument("--script", type=Path, required=True, help="Python file that defines SCRIPT")
    parser.add_argument("--port", type=int, default=0, help="port to listen on; 0 takes a free one")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on")
    parser.add_argument("--key", help="API key to ask for")
    arguments = parser.parse_args()
    # Both end it, also where a shell in the background has it ignore the first.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    script = load_script(arguments.script)
    with ScriptedServer(script, key=arguments.key, port=arguments.port, host=arguments.host) as server:
        print(server.url, flush=True)
        try:
            server.wait()
        except KeyboardInterrupt:
            return


if __name__ == "__main__":
    main()
