"""The figures of the page of the cluster: a fixed list of queries, only for callers that the orchestrator accepts."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from dressage_console.settings import Settings
from dressage_console.usage import QUERIES, Usage
from pydantic import ValidationError


@contextmanager
def answering(answer: Any) -> Iterator[tuple[str, list[dict[str, list[str]]]]]:
    """A server with the form of Prometheus's answers (its HTTP API, range queries), and the queries that it got."""
    queries: list[dict[str, list[str]]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            queries.append(parse_qs(urlsplit(self.path).query))
            body = json.dumps(answer).encode()
            self.send_response(200)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *arguments: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", queries
    finally:
        server.shutdown()
        server.server_close()


def series(name: str, *values: str) -> dict[str, Any]:
    return {
        "metric": {"__name__": "x", "pool": name},
        "values": [[60.0 * at, value] for at, value in enumerate(values)],
    }


def test_pages_share_the_answers_of_the_fixed_queries() -> None:
    result = [series("small", "1", "NaN", "2"), series("large", "1", "5"), series("none", "NaN")]
    now = [1000.0]
    with answering({"status": "success", "data": {"resultType": "matrix", "result": result}}) as (url, queries):
        usage = Usage(url, 'namespace="lab"', clock=lambda: now[0])

        async def twice() -> list[dict[str, Any]]:
            return list(await asyncio.gather(usage.read(), usage.read()))

        first, second = asyncio.run(twice())
        assert first is second and len(queries) == len(QUERIES)
        assert all('namespace="lab"' in query["query"][0] and "$S" not in query["query"][0] for query in queries)
        now[0] += 60
        asyncio.run(usage.read())
        assert len(queries) == 2 * len(QUERIES)
    assert json.loads(json.dumps(first, allow_nan=False)) == first
    assert [panel["key"] for panel in first["panels"]] == [query.key for query in QUERIES]
    shown = first["panels"][0]["series"]
    assert [entry["labels"]["pool"] for entry in shown] == ["large", "small"]
    assert shown[1]["points"] == [[0.0, 1.0], [120.0, 2.0]]


def test_queries_are_whole_without_a_selector() -> None:
    with answering({"status": "success", "data": {"result": []}}) as (url, queries):
        assert asyncio.run(Usage(url).read()) == {"configured": True, "error": "", "panels": []}
    assert all("$S" not in query["query"][0] and ",}" not in query["query"][0] for query in queries)


@pytest.mark.parametrize("answer", [{"status": "error"}, {"data": {"result": [{"metric": {}}]}}, []])
def test_an_answer_of_another_form_becomes_a_message(answer: Any) -> None:
    with answering(answer) as (url, _):
        figures = asyncio.run(Usage(url).read())
    assert figures["configured"] and not figures["panels"]
    assert figures["error"] == "Prometheus does not answer as expected; see the console's log."


def test_a_server_that_is_down_becomes_a_message() -> None:
    assert "does not answer" in asyncio.run(Usage("http://127.0.0.1:9").read())["error"]


def test_no_server_is_queries_if_none_is_configured() -> None:
    assert asyncio.run(Usage("").read()) == {"configured": False, "error": "", "panels": []}


@pytest.mark.parametrize("selector", ['namespace="a"} or vector(1', "namespace", 'a="b",', 'a="b\\"'])
def test_a_selector_is_label_matchers_only(selector: str) -> None:
    with pytest.raises(ValidationError, match="prometheus_selector"):
        Settings(address="127.0.0.1:0", prometheus_selector=selector)


def test_several_label_matchers_are_accepted() -> None:
    text = 'namespace="a",job=~"dressage-.*"'
    assert Settings(address="127.0.0.1:0", prometheus_selector=text).prometheus_selector == text
