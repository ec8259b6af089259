"""Prometheus on loopback, with the chart's alerts, for tests of the metrics of a running system."""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from tests.unit.chart.prometheus_tools import program, write_rules


class Prometheus:
    """Scrapes its targets each second, under the labels that a ServiceMonitor would give them.

    :param targets: host:port of the metrics by service.
    """

    def __init__(self, folder: Path, targets: Mapping[str, str]) -> None:
        write_rules(folder / "rules.yaml")
        every = {"scrape_interval": "1s", "evaluation_interval": "1s"}
        scrapes = [
            {"job_name": name, "static_configs": [{"targets": [target], "labels": {"namespace": "lab"}}]}
            for name, target in targets.items()
        ]
        config = {"global": every, "rule_files": [str(folder / "rules.yaml")], "scrape_configs": scrapes}
        (folder / "prometheus.yaml").write_text(yaml.safe_dump(config))
        self.address = f"127.0.0.1:{free_port()}"
        self._command = [
            program("prometheus"),
            f"--config.file={folder / 'prometheus.yaml'}",
            f"--storage.tsdb.path={folder / 'prometheus'}",
            f"--web.listen-address={self.address}",
            "--log.level=warn",
        ]

    @contextlib.contextmanager
    def running(self) -> Iterator[Prometheus]:
        """Runs it, and waits until it answers."""
        process = subprocess.Popen(self._command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            eventually(lambda: self._answers() or None, "Prometheus does not come up", seconds=60)
            yield self
        finally:
            process.terminate()
            process.wait(20)

    def _answers(self) -> bool:
        with contextlib.suppress(OSError), urllib.request.urlopen(f"http://{self.address}/-/ready", timeout=2):
            return True
        return False

    def get(self, path: str, **parameters: str) -> Any:
        """The data of an answer of the API."""
        url = f"http://{self.address}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        with urllib.request.urlopen(url, timeout=20) as response:
            answer = json.load(response)
        assert answer["status"] == "success", answer
        return answer["data"]

    def value(self, expression: str) -> float | None:
        """The one value of an expression; None if there is none."""
        result = self.get("query", query=expression)["result"]
        return float(result[0]["value"][1]) if result else None

    def labels(self) -> dict[str, set[str]]:
        """The labels of each metric that was ever scraped."""
        labels: dict[str, set[str]] = {}
        for series in self.get("series", **{"match[]": '{__name__=~".+"}'}):
            labels.setdefault(series["__name__"], set()).update(series.keys() - {"__name__"})
        return labels


def eventually(look: Callable[[], Any], message: str, *, seconds: float = 60.0) -> Any:
    """What ``look`` gives once it is not None."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if (seen := look()) is not None:
            return seen
        time.sleep(0.2)
    raise AssertionError(message)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
