"""Panels that the dashboards are made of: a few kinds, alike everywhere."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from grafana_foundation_sdk.builders import common, dashboard, heatmap, prometheus, stat, timeseries
from grafana_foundation_sdk.models import common as common_model
from grafana_foundation_sdk.models import dashboard as model
from grafana_foundation_sdk.models import prometheus as prometheus_model

AnyPanel = timeseries.Panel | stat.Panel | heatmap.Panel

SOURCE = model.DataSourceRef(type_val="prometheus", uid="${datasource}")
NAMESPACE = 'namespace=~"$namespace"'
"""Every query is about the namespaces chosen."""


@dataclass(frozen=True)
class Query:
    """An expression of Prometheus's language and how its series are called; ``$N`` stands for the namespace."""

    expression: str
    legend: str = ""

    def build(self) -> prometheus.Dataquery:
        """For a panel."""
        expression = self.expression.replace("$N", NAMESPACE)
        return prometheus.Dataquery().expr(expression).legend_format(self.legend or "__auto").datasource(SOURCE)


def lines(
    title: str, *queries: Query, unit: str = "short", span: int = 12, stacked: bool = False, told: str = ""
) -> timeseries.Panel:
    """Series over time."""
    panel = timeseries.Panel().title(title).description(told).datasource(SOURCE).unit(unit).span(span).height(8)
    panel = panel.min(0).fill_opacity(10).line_width(1).show_points(common_model.VisibilityMode.NEVER)
    legend = common.VizLegendOptions().show_legend(True).display_mode(common_model.LegendDisplayMode.LIST)
    panel = panel.legend(legend.placement(common_model.LegendPlacement.BOTTOM).calcs([]))
    panel = panel.tooltip(common.VizTooltipOptions().mode(common_model.TooltipDisplayMode.MULTI))
    if stacked:
        panel = panel.stacking(common.StackingConfig().mode(common_model.StackingMode.NORMAL))
    for query in queries:
        panel = panel.with_target(query.build())
    return panel


def number(
    title: str, query: Query, *, unit: str = "short", bad_above: float | None = None, told: str = ""
) -> stat.Panel:
    """One number, red above a bound."""
    steps = [model.Threshold(value=None, color="green")]
    if bad_above is not None:
        steps.append(model.Threshold(value=bad_above, color="red"))
    thresholds = dashboard.ThresholdsConfig().mode(model.ThresholdsMode.ABSOLUTE).steps(steps)
    panel = stat.Panel().title(title).description(told).datasource(SOURCE).unit(unit).span(4).height(4)
    panel = panel.graph_mode(common_model.BigValueGraphMode.AREA).thresholds(thresholds)
    return panel.reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"])).with_target(query.build())


def distribution(title: str, query: Query, *, unit: str = "short", span: int = 12, told: str = "") -> heatmap.Panel:
    """How many observations fell into which bucket, over time; the query gives buckets by ``le``."""
    target = query.build().format(prometheus_model.PromQueryFormat.HEATMAP)
    panel = heatmap.Panel().title(title).description(told).datasource(SOURCE).span(span).height(8)
    return panel.calculate(False).unit(unit).with_target(target)


def quantiles(metric: str, by: str = "", matching: str = "", legend: str = "") -> list[Query]:
    """Median and 95th percentile of a histogram."""
    grouped = f"le, {by}" if by else "le"
    chosen = f"$N, {matching}" if matching else "$N"
    name = f"{legend} " if legend else ""
    return [
        Query(
            f"histogram_quantile({q}, sum by ({grouped}) (rate({metric}_bucket{{{chosen}}}[$__rate_interval])))",
            f"{name}p{round(100 * q)}",
        )
        for q in (0.5, 0.95)
    ]


def page(uid: str, title: str, told: str) -> dashboard.Dashboard:
    """An empty dashboard with the choice of data source and namespace."""
    made = dashboard.Dashboard(title).uid(uid).description(told).tags(["dressage"]).editable()
    made = made.time("now-6h", "now").refresh("30s").timezone("browser").tooltip(model.DashboardCursorSync.CROSSHAIR)
    source = dashboard.DatasourceVariable("datasource").label("Data source").type("prometheus")
    namespaces = (
        dashboard.QueryVariable("namespace")
        .label("Namespace")
        .datasource(SOURCE)
        .query("label_values(dressage_build_info, namespace)")
        .refresh(model.VariableRefresh.ON_TIME_RANGE_CHANGED)
        .multi(True)
        .include_all(True)
        .all_value(".*")
    )
    links = dashboard.DashboardLink("Dressage").type(model.DashboardLinkType.DASHBOARDS).tags(["dressage"])
    links = links.as_dropdown(True).include_vars(True).keep_time(True)
    return made.with_variable(source).with_variable(namespaces).link(links)


def filled(made: dashboard.Dashboard, sections: Sequence[tuple[str, Sequence[AnyPanel]]]) -> dashboard.Dashboard:
    """The dashboard with its panels under headings."""
    for title, panels in sections:
        made = made.with_row(dashboard.Row(title))
        for panel in panels:
            made = made.with_panel(panel)
    return made
