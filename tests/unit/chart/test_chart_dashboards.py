"""Dashboards: current, of Grafana's shape, and every query is PromQL. What they name is checked against a running system in
tests/e2e/test_e2e_prometheus.py."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.dashboard import Dashboard

from tests.unit.chart.queries import Use, dashboards, queries_of, uses
from tests.unit.chart.rendering import ROOT, of_kind

NAMES = ["models.json", "services.json", "sessions.json", "training.json"]


def test_files_are_current() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tools.dashboards", "--check"], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", NAMES)
def test_a_dashboard_survives_grafanas_own_types(name: str) -> None:
    """Read into the types of Grafana's schema and written again, nothing is lost or added."""
    document = dashboards()[name]
    again = json.loads(JSONEncoder(sort_keys=True).encode(Dashboard.from_json(document)))
    assert again == document


@pytest.mark.parametrize("name", NAMES)
def test_panels_are_whole(name: str) -> None:
    document = dashboards()[name]
    panels = [panel for panel in document["panels"] if panel["type"] != "row"]
    assert len(panels) >= 10
    ids = [panel["id"] for panel in document["panels"]]
    assert len(ids) == len(set(ids))
    taken: set[tuple[int, int]] = set()
    for panel in document["panels"]:
        place = panel["gridPos"]
        cells = {(place["x"] + i, place["y"] + j) for i in range(place["w"]) for j in range(place["h"])}
        assert max(x for x, _ in cells) < 24 and not cells & taken, f"{panel['title']} overlaps another panel"
        taken |= cells
    for panel in panels:
        assert panel["targets"] and panel["datasource"]["uid"] == "${datasource}"
    assert {variable["name"] for variable in document["templating"]["list"]} == {"datasource", "namespace"}


@pytest.mark.parametrize("name", NAMES)
def test_every_query_is_promql_and_of_the_chosen_namespaces(name: str) -> None:
    count = 0
    for panel, expression in queries_of(dashboards()[name]):
        for use in uses(expression):
            assert "namespace" in use.labels, f"{panel}: {expression} reads all namespaces"
            count += 1
    assert count >= 10


def test_uids_and_titles_differ() -> None:
    documents = dashboards().values()
    assert len({d["uid"] for d in documents}) == len({d["title"] for d in documents}) == len(NAMES) == len(documents)


def test_configmaps_hold_them_as_grafanas_sidecar_expects() -> None:
    entries = [
        entry for entry in of_kind("monitoring", "ConfigMap") if "grafana_dashboard" in entry["metadata"]["labels"]
    ]
    assert len(entries) == len(NAMES)
    for entry in entries:
        assert entry["metadata"]["labels"]["grafana_dashboard"] == "1"
        (text,) = entry["data"].values()
        assert json.loads(text) in list(dashboards().values())
        assert len(text) < 1_000_000


def test_the_walk_sees_metrics_and_labels() -> None:
    result = uses('sum by (a) (rate(x_total{b="1"}[5m])) / on (a) max(y{c!="2"})')
    assert result == [Use("x_total", frozenset({"a", "b"})), Use("y", frozenset({"c"}))]
    with pytest.raises(ValueError, match=r"."):
        uses("sum by (a (x)")
