"""A scripted model provider: an HTTP server with OpenAI's chat completions API, including tool calls and faults.

In a test::

    with ScriptedServer([Answer("hello"), Answer(status=429, retry_after=1)]) as server:
        ...  # point the client at server.url
        assert len(server.requests) == 1
        server.assert_exhausted()

Or as a program, with a Python file that defines ``SCRIPT`` (a list of answers, or a function that returns one)::

    python tests/fakes/openai_server.py --script tests/fakes/scripts/repair_then_revise.py --port 8900

A reply may depend on its request: ``Answer(reply=function)``. `search_authors.SearchAuthors` has such replies for the roles of
the search methods: valid parameters for any form, working policies in Python, and, on request, duplicates and bad replies::

    authors = SearchAuthors(seed=0, duplicate_every=5, bad_every=7)
    with ScriptedServer([Answer(status=429), *authors.answers()]) as server: ...

Requests to Gemini (``…:generateContent``) are answered as well; scripts see them in the same form.

Each request gets the first unused answer whose ``when`` accepts it. A request without one gets status 400, which clients must
not retry, and is added to ``unexpected``. A request whose client disconnects before a delayed answer is added to ``abandoned``.
"""

from __future__ import annotations

import argparse
import base64
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
    """A received request: the body, and the headers with lower-case names."""

    body: dict[str, Any]
    headers: dict[str, str]

    def pictures(self) -> list[str]:
        """Return the data URLs of all images and clips in the messages, in order."""
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

    def clips(self) -> list[tuple[bytes, float]]:
        """Return all clips that were sent as files, with the frames per second at which the provider is to sample them."""
        parts = [p for m in self.body.get("messages", []) if isinstance(m.get("content"), list) for p in m["content"]]
        files = [part["file"] for part in parts if part.get("type") == "file"]
        return [
            (
                base64.b64decode(file["file_data"].partition(",")[2]),
                float(file.get("video_metadata", {}).get("fps", 1.0)),
            )
            for file in files
        ]

    def text(self, role: str = "") -> str:
        """Return the text of the messages of a role (``system``, ``user``, …), or of all roles."""
        messages = self.body.get("messages", [])
        return "\n".join(_text(m.get("content")) for m in messages if not role or m.get("role") == role)


@dataclass(frozen=True)
class Call:
    """A tool call of an answer; a string as ``arguments`` is sent unchanged, even if malformed."""

    name: str
    arguments: dict[str, Any] | str = field(default_factory=dict)


Condition = str | Callable[[Request], bool] | None
Fault = Literal["stall", "cut", "truncate", "huge", "drip", "endless", ""]


@dataclass(frozen=True)
class Answer:
    """One answer of the script.

    :param text: content of the message.
    :param reply: returns the content for a request, in place of ``text``; called once, in the order of arrival.
    :param calls: tool calls of the message.
    :param when: text that must occur in the request's messages, or a predicate; None accepts all.
    :param status: HTTP status; other than 200 sends an error body.
    :param retry_after: value of the Retry-After header.
    :param fault: ``stall`` (never answers), ``cut`` (closes the connection within the body), ``truncate`` (sends half of
        the JSON), ``huge`` (10 MB of text), ``drip`` (half of the body, then nothing), ``endless`` (a body of half a gigabyte
        without a declared length).
    :param delay: seconds before it is sent. If the client disconnects before, the next such request gets it, without delay.
    :param held: it is sent once this is set; a client that disconnects before counts as for ``delay``.
    :param repeat: whether it may be used repeatedly.
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
    held: threading.Event | None = None
    repeat: bool = False
    reply: Callable[[Request], str] | None = None

    def accepts(self, request: Request) -> bool:
        """Return whether this answer is for a request."""
        if self.when is None:
            return True
        return self.when in request.text() if isinstance(self.when, str) else self.when(request)


class ScriptedServer:
    """The server, with its own threads; a context manager.

    :param script: answers in order.
    :param key: the required API key; None accepts any.
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
        """The API base for clients."""
        return f"http://127.0.0.1:{self._http.server_address[1]}/v1"

    def __enter__(self) -> ScriptedServer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._http.shutdown()
        self._http.server_close()
        self._thread.join(5)

    def begin(self, script: Iterable[Answer]) -> None:
        """Answer by another script from now on, and forget the requests so far; clients keep their connections."""
        with self._lock:
            self._left = list(script)
            self.requests, self.unexpected, self.abandoned = [], [], []

    def wait(self) -> None:
        """Block until the process is interrupted."""
        self._stopping.wait()

    def assert_exhausted(self) -> None:
        """Fail unless every answer was used and no request was unexpected."""
        left = [answer for answer in self._left if not answer.repeat]
        assert not left, f"{len(left)} answers were not used; the first: {left[0]}"
        assert not self.unexpected, f"no answer for: {self.unexpected[0].text()[-500:]}"

    def counts(self) -> dict[str, int]:
        """Return the numbers of requests, of those without an answer, and of unused answers."""
        with self._lock:
            left = sum(not answer.repeat for answer in self._left)
            return {"requests": len(self.requests), "unexpected": len(self.unexpected), "left": left}

    def take(self, request: Request) -> Answer:
        """Return the answer to a request and remove it, unless it repeats."""
        with self._lock:
            keys = (request.headers.get("authorization"), f"Bearer {request.headers.get('x-goog-api-key')}")
            if self._key is not None and f"Bearer {self._key}" not in keys:
                self.unauthorised += 1
                shown = request.headers.get("authorization", "none")
                return Answer(f"Incorrect API key provided: {shown}", status=401)
            self.requests.append(request)
            for index, answer in enumerate(self._left):
                if answer.accepts(request):
                    chosen = answer if answer.repeat else self._left.pop(index)
                    return chosen if chosen.reply is None else replace(chosen, text=chosen.reply(request))
            self.unexpected.append(request)
            return Answer("the script has no answer for this request", status=400)

    def give_back(self, request: Request, answer: Answer) -> None:
        """Record that the client disconnected before its answer, which the next such request gets without delay."""
        with self._lock:
            self.abandoned.append(request)
            if not answer.repeat:
                self._left.insert(0, replace(answer, delay=0.0, held=None))

    def stall(self) -> None:
        """Wait until the server stops."""
        self._stopping.wait(600)


def _handler(server: ScriptedServer) -> type[BaseHTTPRequestHandler]:  # noqa: C901 - a class within, of small methods
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        # Headers and body are two packets; otherwise the second one waits for the client's delayed acknowledgement, 40 ms.
        disable_nagle_algorithm = True

        def do_POST(self) -> None:
            length = int(self.headers.get("content-length", 0))
            body = json.loads(self.rfile.read(length) or b"{}")
            gemini = self.path.partition("?")[0].endswith(":generateContent")
            if not gemini and not self.path.endswith("/chat/completions"):
                self._send(404, _error(f"no such path: {self.path}", 404))
                return
            headers = {name.lower(): value for name, value in self.headers.items()}
            request = Request(_from_gemini(body) if gemini else body, headers)
            answer = server.take(request)
            if (answer.delay and self._disconnected_within(answer.delay)) or self._disconnected_while_held(answer):
                server.give_back(request, answer)
                self.close_connection = True
                return
            self._answer(answer, None if gemini else str(body.get("model", "")))

        def do_GET(self) -> None:
            self._send(200, json.dumps(server.counts()).encode())

        def _disconnected_within(self, seconds: float) -> bool:
            """Wait until the client disconnects or the time is over; return whether it disconnected."""
            readable, _, _ = select.select([self.connection], [], [], seconds)
            try:
                return bool(readable) and not self.connection.recv(1, socket.MSG_PEEK)
            except ConnectionError:
                return True

        def _disconnected_while_held(self, answer: Answer) -> bool:
            while answer.held is not None and not answer.held.is_set():
                if self._disconnected_within(0.05):
                    return True
            return False

        def _answer(self, answer: Answer, model: str | None) -> None:
            if answer.fault == "stall":
                server.stall()
            elif answer.fault == "endless":
                self._pour()
            elif answer.status != 200:
                extra = {} if answer.retry_after is None else {"Retry-After": f"{answer.retry_after:g}"}
                self._send(answer.status, _error(answer.text or "injected fault", answer.status), extra)
            else:
                whole = _gemini_completion(answer) if model is None else _completion(answer, model)
                self._complete(answer.fault, json.dumps(whole).encode())

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
                return  # the client closed the connection, as it should
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
                self.close_connection = True  # the client disconnected after a fault

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


def _from_gemini(body: dict[str, Any]) -> dict[str, Any]:
    """The body of a request to Gemini in the form of the others; of its parts only text and inline files."""
    system = body.get("system_instruction") or body.get("systemInstruction") or {"parts": []}
    messages = [{"role": "system", "content": "\n".join(part["text"] for part in system["parts"])}]
    for content in body["contents"]:
        parts = [_from_gemini_part(part) for part in content["parts"]]
        messages.append({"role": content.get("role", "user").replace("model", "assistant"), "content": parts})
    return {"messages": messages}


def _from_gemini_part(part: dict[str, Any]) -> dict[str, Any]:
    if "text" in part:
        return {"type": "text", "text": part["text"]}
    blob = part.get("inline_data") or part["inlineData"]
    mime = blob.get("mime_type") or blob["mimeType"]
    file = {"file_data": f"data:{mime};base64,{blob['data']}"}
    metadata = part.get("video_metadata") or part.get("videoMetadata")
    return {"type": "file", "file": file | ({"video_metadata": metadata} if metadata else {})}


def _gemini_completion(answer: Answer) -> dict[str, Any]:
    total = answer.input_tokens + answer.output_tokens
    return {
        "candidates": [{"content": {"parts": [{"text": answer.text}], "role": "model"}, "finishReason": "STOP"}],
        "usageMetadata": {
            "promptTokenCount": answer.input_tokens,
            "candidatesTokenCount": answer.output_tokens,
            "totalTokenCount": total,
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
    """Return the answers of a script file's ``SCRIPT``, a list or a function."""
    # The script imports this module by name, also when the module runs as a program.
    sys.modules.setdefault("openai_server", sys.modules[__name__])
    sys.path.insert(0, str(Path(__file__).parent))
    script = runpy.run_path(str(path))["SCRIPT"]
    return list(script() if callable(script) else script)


def main() -> None:
    """Print the URL and serve a script until interrupted."""
    parser = argparse.ArgumentParser(description="A scripted model provider.")
    parser.add_argument("--script", type=Path, required=True, help="Python file that defines SCRIPT")
    parser.add_argument("--port", type=int, default=0, help="port to listen on; 0 takes a free one")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on")
    parser.add_argument("--key", help="required API key")
    arguments = parser.parse_args()
    # A background shell may ignore SIGINT by default; both signals end the server.
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
