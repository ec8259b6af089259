"""Alerts: each fires when it should and only then, and has a runbook."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from tests.unit.chart.alert_series import CASES, promtool_tests
from tests.unit.chart.prometheus_tools import promtool, write_rules
from tests.unit.chart.rendering import ROOT


def test_each_alert_fires_when_it_should_and_only_then(tmp_path: Path) -> None:
    alerts = write_rules(tmp_path / "rules.yaml")
    assert alerts.keys() == CASES.keys()
    checked = promtool("check", "rules", str(tmp_path / "rules.yaml"))
    assert checked.returncode == 0, checked.stdout + checked.stderr
    document = promtool_tests("rules.yaml", alerts)
    for test in document["tests"]:
        for case in test["alert_rule_test"]:
            for expected in case["exp_alerts"]:
                expected["exp_annotations"] = _annotations(alerts[case["alertname"]], tmp_path, test, case)
    (tmp_path / "tests.yaml").write_text(yaml.safe_dump(document))
    done = promtool("test", "rules", str(tmp_path / "tests.yaml"))
    assert done.returncode == 0, done.stdout + done.stderr


def _annotations(alert: dict[str, object], folder: Path, test: dict[str, object], case: dict[str, object]) -> object:
    """Those of the alert, with the values that promtool computes; it must leave no template as it is."""
    single = {"rule_files": ["rules.yaml"], "evaluation_interval": "1m", "tests": [test]}
    (folder / "one.yaml").write_text(yaml.safe_dump(single))
    done = promtool("test", "rules", str(folder / "one.yaml"))
    output = done.stdout + done.stderr
    got = output.partition("got:")[2]
    annotations = dict(alert["annotations"])  # type: ignore[call-overload]
    described = re.search(r'description="((?:[^"\\]|\\.)*)"', got)
    assert described, output
    assert "{{" not in described[1] and "<no value>" not in described[1], described[1]
    annotations["description"] = described[1].replace('\\"', '"')
    return annotations


def test_thresholds_come_from_the_values(tmp_path: Path) -> None:
    alerts = write_rules(tmp_path / "rules.yaml", "--set", "monitoring.rules.dollarsPerHour=2.5")
    assert str(alerts["DressageBudgetBurn"]["expr"]).endswith("> 2.5")


@pytest.mark.parametrize("name", CASES)
def test_each_alert_has_a_runbook(name: str, tmp_path: Path) -> None:
    alert = write_rules(tmp_path / "rules.yaml")[name]
    page, _, anchor = str(alert["annotations"]["runbook_url"]).partition("#")  # type: ignore[index]
    headings = re.findall(r"^#+ (.+)$", (ROOT / page).read_text(), re.MULTILINE)
    assert anchor in {heading.lower().replace(" ", "-").strip("`") for heading in headings}
