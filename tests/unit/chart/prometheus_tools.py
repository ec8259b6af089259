"""Prometheus's programs, and the chart's alerts as a file that they read."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.unit.chart.rendering import NAMESPACE, ROOT, template

FETCHED = ROOT / ".tools" / "prometheus" / "usr" / "bin"


def program(name: str) -> str:
    """The path of `prometheus` or `promtool`; skips the test where it is not there (tools/system-packages prometheus)."""
    result = shutil.which(name) or shutil.which(name, path=str(FETCHED))
    if result is None:
        pytest.skip(f"{name} is not installed: tools/system-packages prometheus")
    return result


def promtool(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs promtool."""
    return subprocess.run([program("promtool"), *arguments], capture_output=True, text=True, timeout=60)


def write_rules(path: Path, *arguments: str) -> dict[str, dict[str, object]]:
    """Writes the chart's alerts of namespace `lab` as a rule file; the alerts by name."""
    done = template("--show-only", "templates/prometheusrule.yaml", *arguments)
    assert done.returncode == 0, done.stderr
    spec = yaml.safe_load(done.stdout)["spec"]
    path.write_text(yaml.safe_dump(spec, sort_keys=False, allow_unicode=True))
    assert NAMESPACE in done.stdout
    return {rule["alert"]: rule for group in spec["groups"] for rule in group["rules"]}
