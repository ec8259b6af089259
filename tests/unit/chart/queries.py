"""The queries of dashboards and alerts, and what each takes for granted about the series that it reads."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import promql_parser as promql

from tests.unit.chart.rendering import CHART

_VARIABLES = {"$namespace": ".*", "$__rate_interval": "30s", "$__range": "5m"}


@dataclass(frozen=True)
class Use:
    """A metric that a query reads, and the labels of it that the query names."""

    metric: str
    labels: frozenset[str]


def dashboards() -> dict[str, dict[str, Any]]:
    """The chart's dashboards by file name."""
    return {path.name: json.loads(path.read_text()) for path in sorted((CHART / "dashboards").glob("*.json"))}


def queries_of(dashboard: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Panel and expression, variables with_defaults in."""
    for panel in dashboard["panels"]:
        for target in panel.get("targets", []):
            yield panel["title"], with_defaults(target["expr"])


def with_defaults(expression: str) -> str:
    """The expression with Grafana's variables replaced."""
    for name, value in _VARIABLES.items():
        expression = expression.replace(name, value)
    assert "$" not in expression, f"an unknown variable in {expression}"
    return expression


def rule_queries(path: Path) -> Iterator[tuple[str, str]]:
    """Alert and expression of a rule file."""
    import yaml

    for group in yaml.safe_load(path.read_text())["groups"]:
        for rule in group["rules"]:
            yield rule["alert"], rule["expr"]


def uses(expression: str) -> list[Use]:
    """Return the series and labels that an expression reads.

    :raises ValueError: if it is not PromQL.
    """
    result: list[Use] = []
    _walk(promql.parse(expression), frozenset(), result)
    return result


def _walk(node: Any, grouped: frozenset[str], result: list[Use]) -> None:
    """Visit a node, with the labels that its parents group by."""
    if isinstance(node, promql.VectorSelector):
        matched = {matcher.name for matcher in node.matchers.matchers}
        result.append(Use(node.name, frozenset(matched) | grouped))
    elif isinstance(node, promql.MatrixSelector):
        _walk(node.vector_selector, grouped, result)
    elif isinstance(node, promql.AggregateExpr):
        _walk(node.expr, grouped | frozenset(node.modifier.labels if node.modifier else ()), result)
    elif isinstance(node, promql.Call):
        for argument in node.args:
            _walk(argument, grouped, result)
    elif isinstance(node, promql.BinaryExpr):
        _walk(node.lhs, grouped, result)
        _walk(node.rhs, grouped, result)
    elif isinstance(node, promql.ParenExpr | promql.UnaryExpr | promql.SubqueryExpr):
        _walk(node.expr, grouped, result)
    else:
        assert isinstance(node, promql.NumberLiteral | promql.StringLiteral), (
            f"a {type(node).__name__} is not looked at"
        )


# What NVIDIA's DCGM exporter has by default, with the labels of a pod's GPU; no machine of the tests has one.
GPU_METRICS = {"DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_FB_USED", "DCGM_FI_DEV_POWER_USAGE", "DCGM_FI_DEV_XID_ERRORS"}
GPU_LABELS = {"gpu", "UUID", "device", "modelName", "Hostname", "namespace", "pod", "container", "job", "instance"}


def has_samples_after_a_session(expression: str) -> bool:
    """Whether a query of a dashboard has a result after a session: unless it is of failures or GPUs."""
    return "!=" not in expression and not any(use.metric in GPU_METRICS for use in uses(expression))
