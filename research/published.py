"""Published numbers of a paper, which a report shows next to ours, with their caveats."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dressage.errors import InvalidArgument
from dressage.experiments import report
from dressage.experiments.analysis import METRICS, Analysis, Metric
from dressage.experiments.report import number
from dressage.sdk.files import read_source
from dressage.sdk.texts import quantity
from pydantic import BaseModel, ConfigDict, Field, ValidationError


class PublishedValue(BaseModel):
    """A published mean; the standard deviation is often not published."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    mean: float
    deviation: float | None = None
    method: str = Field("", description="Name of the method, where a column shows the best of several.")


class Published(BaseModel):
    """The numbers of a paper."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    title: str
    source: str
    runs: int
    caveats: list[str] = Field(description="What to know before comparing.")
    environment_caveats: dict[str, str] = {}
    metrics: dict[str, dict[str, dict[str, PublishedValue]]] = Field(
        description="Metric of ours, method of the paper, environment of ours."
    )
    further: dict[str, Any] = Field({}, description="Other published numbers; a report does not show them.")

    def methods(self, metric: str) -> list[str]:
        """Return the methods with numbers of a metric."""
        return list(self.metrics.get(metric, {}))

    def values(self, metric: str, environment: str) -> Mapping[str, PublishedValue]:
        """Return the numbers of a metric in an environment, by method."""
        by_method = self.metrics.get(metric, {})
        return {name: values[environment] for name, values in by_method.items() if environment in values}


def load_published(path: Path) -> Published:
    """Read published numbers.

    :raises InvalidArgument: naming the file and the path of the wrong field.
    """
    text = read_source(path, field="--published")
    try:
        published = Published.model_validate_json(text)
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        field = f"{path.name}: {'.'.join(map(str, problem['loc']))}".rstrip(": ")
        raise InvalidArgument(field=field, problem=problem["msg"], expected="published numbers") from None
    if unknown := sorted(set(published.metrics) - set(METRICS)):
        expected = f"one of {', '.join(METRICS)}"
        raise InvalidArgument(field=f"{path.name}: metrics", value=unknown[0], expected=expected)
    return published


def score_table(analysis: Analysis, metric: Metric, published: Sequence[Published]) -> list[str]:
    """Return the table of a metric with the columns of papers that have it."""
    columns = {
        f"{name} (published)": {environment: _text(value) for environment, value in paper.metrics[metric][name].items()}
        for paper in published
        for name in paper.methods(metric)
    }
    lines = report.score_table(analysis, metric, columns)
    if columns:
        lines += ["Published columns were not produced here; see [Published numbers](#published-numbers).", ""]
    return lines


def _text(value: PublishedValue) -> str:
    deviation = f" ± {number(value.deviation)}" if value.deviation is not None else ""
    return f"{number(value.mean)}{deviation}{f' {value.method}' if value.method else ''}"


def published_numbers(analysis: Analysis, published: Sequence[Published]) -> list[str]:
    """Return the section with the sources and caveats of published numbers."""
    if not published:
        return []
    lines = ["## Published numbers", ""]
    for paper in published:
        lines += [f"{paper.title}, {quantity(paper.runs, 'run')}. Source: {paper.source}.", ""]
        lines += [f"- {caveat}" for caveat in paper.caveats]
        shown = [name for name in paper.environment_caveats if name in analysis.results.environments]
        lines += [*(f"- {name}: {paper.environment_caveats[name]}" for name in shown), ""]
    return lines
