"""The Grafana dashboards as code; `python -m tools.dashboards` writes them into the chart."""
