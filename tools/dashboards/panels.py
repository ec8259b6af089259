"""The kinds of panels that all dashboards share."""

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
"""Restricts every query to the chosen namespaces."""


@dataclass(frozen=True)
class Query:
    """A PromQL expression and the legend of its series; ``$N`` stands for the namespace."""

    expression: str
    legend: str = ""

    def build(self) -> prometheus.Dataquery:
        """Build the query of a panel."""
        expression = self.expression.replace("$N", NAMESPACE)
        return prometheus.Dataquery().expr(expression).legend_format(self.legend or "__auto").datasource(SOURCE)


def lines(
    title: str, *queries: Query, unit: str = "short", span: int = 12, stacked: bool = False, description: str = ""
) -> timeseries.Panel:
    """Return a panel of series over time."""
    panel = timeseries.Panel().title(title).description(description).datasource(SOURCE).unit(unit).span(span).height(8)
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
    title: str, query: Query, *, unit: str = "short", bad_above: float | None = None, description: str = ""
) -> stat.Panel:
    """Return a panel of one number, red above a bound."""
    steps = [model.Threshold(value=None, color="green")]
    if bad_above is not None:
        steps.append(model.Threshold(value=bad_above, color="red"))
    thresholds = dashboard.ThresholdsConfig().mode(model.ThresholdsMode.ABSOLUTE).steps(steps)
    panel = stat.Panel().title(title).description(description).datasource(SOURCE).unit(unit).span(4).height(4)
    panel = panel.graph_mode(common_model.BigValueGraphMode.AREA).thresholds(thresholds)
    return panel.reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"])).with_target(query.build())


def distribution(
    title: str, query: Query, *, unit: str = "short", span: int = 12, description: str = ""
) -> heatmap.Panel:
    """Return a heat map of observations by bucket over time; the query returns buckets by ``le``."""
    target = query.build().format(prometheus_model.PromQueryFormat.HEATMAP)
    panel = heatmap.Panel().title(title).description(description).datasource(SOURCE).span(span).height(8)
    return panel.calculate(False).unit(unit).with_target(target)


def quantiles(metric: str, by: str = "", matching: str = "", legend: str = "") -> list[Query]:
    """Return the queries of a histogram's median and 95th percentile."""
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


def page(uid: str, title: str, description: str) -> dashboard.Dashboard:
    """Return an empty dashboard with variables for data source and namespace."""
    board = dashboard.Dashboard(title).uid(uid).description(description).tags(["dressage"]).editable()
    board = board.time("now-6h", "now").refresh("30s").timezone("browser").tooltip(model.DashboardCursorSync.CROSSHAIR)
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
    return board.with_variable(source).with_variable(namespaces).link(links)


def add_panels(board: dashboard.Dashboard, sections: Sequence[tuple[str, Sequence[AnyPanel]]]) -> dashboard.Dashboard:
    """Add panels under headings to a dashboard."""
    for title, panels in sections:
        board = board.with_row(dashboard.Row(title))
        for panel in panels:
            board = board.with_panel(panel)
    return board
