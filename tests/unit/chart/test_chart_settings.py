"""The chart sets only settings that the services have, with values that they accept."""

from __future__ import annotations

import importlib
import os
from pathlib import Path
from typing import Any

import pytest
from dressage.artifacts.s3_options import S3Options

from tests.unit.chart.rendering import SCENARIOS, component, of_kind, pods

SERVICES = {
    "orchestrator": "dressage_orchestrator",
    "llm-agent": "dressage_llm_agent",
    "judge": "dressage_judge",
    "renderer": "dressage_renderer",
    "console": "dressage_console",
}


def _settings(service: str) -> Any:
    return importlib.import_module(f"{SERVICES[service]}.settings").Settings


def _variables(scenario: str, service: str) -> dict[str, str]:
    """The container's variables; values from Secrets and the pod are substitutes."""
    (pod,) = [pod for _, pod in pods(scenario) if component(pod) == service]
    substitutes = {"secretKeyRef": "k" * 40, "fieldRef": "lab"}
    by_name: dict[str, str] = {}
    for entry in pod["spec"]["containers"][0]["env"]:
        value = entry.get("value")
        if value is None:
            value = substitutes[next(iter(entry["valueFrom"]))]
        for name, earlier in by_name.items():
            value = value.replace(f"$({name})", earlier)
        by_name[entry["name"]] = value
    if "DRESSAGE_ORCHESTRATOR_DATABASE_URL" in by_name and "://" not in by_name["DRESSAGE_ORCHESTRATOR_DATABASE_URL"]:
        by_name["DRESSAGE_ORCHESTRATOR_DATABASE_URL"] = "postgresql://a:b@c:5432/d"
    return by_name


def _needs(service: str, field: str) -> None:
    if field not in _settings(service).model_fields:
        pytest.skip(f"{service} has no setting {field} yet")


@pytest.mark.parametrize("scenario", SCENARIOS)
@pytest.mark.parametrize("service", SERVICES)
def test_services_accept_the_charts_variables(scenario: str, service: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for setting in {"orchestrator": ["launcher", "executor_name"], "judge": ["llm_agent_token"]}.get(service, []):
        _needs(service, setting)
    for name in [name for name in os.environ if name.startswith("DRESSAGE_")]:
        monkeypatch.delenv(name)
    variables = _variables(scenario, service)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    settings = _settings(service)
    prefix = settings.model_config["env_prefix"]
    fields = {f"{prefix}{field.upper()}" for field in settings.model_fields}
    ours = {name for name in variables if name.startswith(prefix)}
    assert ours <= fields, f"no settings: {sorted(ours - fields)}"
    assert len(ours) >= 7
    settings()  # raises for a bad value


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_the_store_accepts_the_charts_variables(scenario: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "ca.crt").write_text("")
    variables = {
        name: value for name, value in _variables(scenario, "renderer").items() if name.startswith("DRESSAGE_S3_")
    }
    assert {name.removeprefix("DRESSAGE_S3_").lower() for name in variables} <= S3Options.model_fields.keys()
    for name, value in variables.items():
        monkeypatch.setenv(name, str(tmp_path / "ca.crt") if name.endswith("CA_FILE") else value)
    read = S3Options()
    assert read.endpoint.startswith("http") and read.access_key is not None


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_the_launcher_reads_the_pools(scenario: str, tmp_path: Path) -> None:
    package = Path(importlib.import_module("dressage_orchestrator.launch").__path__[0]) / "kubernetes" / "pools.py"
    if not package.exists():
        pytest.skip("there is no launcher of Jobs yet")
    load = importlib.import_module("dressage_orchestrator.launch.kubernetes.pools").load_pools
    (text,) = [e["data"]["pools.json"] for e in of_kind(scenario, "ConfigMap") if "pools.json" in e["data"]]
    (tmp_path / "pools.json").write_text(text)
    pools = load(tmp_path / "pools.json")
    assert set(pools) == ({"cpu", "gpu"} if scenario == "kueue" else {"cpu"})
