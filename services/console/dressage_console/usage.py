"""Use of the installation over the last hour, from a Prometheus server, if one is configured.

The page cannot send queries: it gets the results of a fixed list. Answers are kept for some seconds, so that many open pages
cause no more queries than one.
"""

from __future__ import annotations

import asyncio
import json
import math
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any
from urllib.parse import urlencode

import structlog
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from dressage_console import login
from dressage_console.forwarding import Upstream

_RANGE_SECONDS = 3600
_STEP_SECONDS = 60
_FRESH_SECONDS = 10.0
_TIMEOUT_SECONDS = 10.0
_MAX_BYTES = 4_000_000
_MAX_SERIES = 12


@dataclass(frozen=True)
class Query:
    """A query of the page.

    :param key: stable name.
    :param unit: what the values count.
    :param expression: PromQL, in which ``$S`` stands for the label matchers of the installation.
    """

    key: str
    title: str
    unit: str
    expression: str


QUERIES = (
    Query("cores", "Cores in use", "cores", "sum by (job) (rate(process_cpu_seconds_total{$S}[5m]))"),
    Query(
        "trainer_cores",
        "Cores of trainers",
        "cores",
        'sum by (pod) (rate(container_cpu_usage_seconds_total{container="trainer",$S}[5m]))',
    ),
    Query("memory", "Memory", "bytes", "sum by (job) (process_resident_memory_bytes{$S})"),
    Query(
        "trainer_memory",
        "Memory of trainers",
        "bytes",
        'sum by (pod) (container_memory_working_set_bytes{container="trainer",$S})',
    ),
    Query("gpu", "GPU use", "percent", "avg by (gpu, instance) (DCGM_FI_DEV_GPU_UTIL{$S})"),
    Query("runs", "Runs", "runs", "max by (pool, state) (dressage_runs{$S})"),
    Query(
        "steps", "Steps per second", "steps/s", "max by (pool, environment) (dressage_training_steps_per_second{$S})"
    ),
    Query(
        "dollars",
        "Dollars an hour, by model",
        "dollars",
        "sum by (model) (rate(dressage_llm_cost_dollars_total{$S}[1h])) * 3600",
    ),
)


class Usage:
    """Reads the fixed queries.

    :param url: of the Prometheus server; empty: none.
    :param selector: label matchers of the installation, such as ``namespace="dressage"``.
    """

    def __init__(self, url: str, selector: str = "", *, clock: Callable[[], float] = time.time) -> None:
        self._url = url.rstrip("/")
        self._selector = selector
        self._clock = clock
        self._lock = asyncio.Lock()
        self._kept: tuple[float, dict[str, Any]] | None = None

    async def read(self) -> dict[str, Any]:
        """Return ``configured``, ``error`` and ``panels``; each panel has its query and ``series`` of labels and points."""
        if not self._url:
            return {"configured": False, "error": "", "panels": []}
        async with self._lock:  # pages that ask at the same time share one answer
            now = self._clock()
            if self._kept is None or not 0 <= now - self._kept[0] < _FRESH_SECONDS:
                self._kept = (now, await self._read(now))
            return self._kept[1]

    async def _read(self, now: float) -> dict[str, Any]:
        answers = await asyncio.gather(
            *(asyncio.to_thread(self._series, query, now) for query in QUERIES), return_exceptions=True
        )
        panels, problem = [], ""
        for query, answer in zip(QUERIES, answers, strict=True):
            if isinstance(answer, OSError | ValueError | KeyError | TypeError):
                problem = "Prometheus does not answer as expected; see the console's log."
                structlog.get_logger("dressage.console").warning(
                    "a query failed", query=query.key, error=str(answer)[:300]
                )
            elif isinstance(answer, BaseException):
                raise answer
            elif answer:
                facts = {key: value for key, value in asdict(query).items() if key != "expression"}
                panels.append({**facts, "series": answer})
        return {"configured": True, "error": problem, "panels": panels}

    def _series(self, query: Query, now: float) -> list[dict[str, Any]]:
        expression = query.expression.replace(",$S", f",{self._selector}" if self._selector else "")
        fields = {"query": expression.replace("$S", self._selector), "end": now, "step": _STEP_SECONDS}
        address = f"{self._url}/api/v1/query_range?{urlencode({**fields, 'start': now - _RANGE_SECONDS})}"
        with urllib.request.urlopen(address, timeout=_TIMEOUT_SECONDS) as response:
            data = json.loads(response.read(_MAX_BYTES))
        rows = [_points(entry) for entry in data["data"]["result"]]
        rows = [entry for entry in rows if entry["points"]]
        return sorted(rows, key=lambda entry: -entry["points"][-1][1])[:_MAX_SERIES]


def _points(entry: dict[str, Any]) -> dict[str, Any]:
    """Labels and finite points of a series of Prometheus's answer."""
    labels = {key: str(value) for key, value in entry["metric"].items() if key != "__name__"}
    points = [[float(at), float(value)] for at, value in entry["values"]]
    return {"labels": labels, "points": [point for point in points if math.isfinite(point[1])]}


def routes(upstream: Upstream, usage: Usage) -> list[Route]:
    """`/usage`: the panels as JSON, for callers whom the orchestrator accepts."""

    async def read(request: Request) -> Response:
        code = await login.probe(upstream, login.authorization(request.headers))
        headers = {"cache-control": "no-store"}
        if code != 200:
            return JSONResponse({"message": "Log in first."}, code, headers)
        return JSONResponse(await usage.read(), headers=headers)

    return [Route("/usage", read, methods=["GET"])]
