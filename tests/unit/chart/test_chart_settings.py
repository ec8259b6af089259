"""The chart sets only variables that are settings of the services, with valid values."""

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
}


def _settings(service: str) -> Any:
    return importlib.import_module(f"{SERVICES[service]}.settings").Settings


def _variables(scenario: str, service: str) -> dict[str, str]:
    """The container's variables; what comes from Secrets and the pod is made up."""
    (pod,) = [pod for _, pod in pods(scenario) if component(pod) == service]
    made_up = {"secretKeyRef": "k" * 40, "fieldRef": "lab"}
    result: dict[str, str] = {}
    for entry in pod["spec"]["containers"][0]["env"]:
        value = entry.get("value")
        if value is None:
            value = made_up[next(iter(entry["valueFrom"]))]
        for name, earlier in result.items():
            value = value.replace(f"$({name})", earlier)
        result[entry["name"]] = value
    if "DRESSAGE_ORCHESTRATOR_DATABASE_URL" in result and "://" not in result["DRESSAGE_ORCHESTRATOR_DATABASE_URL"]:
        result["DRESSAGE_ORCHESTRATOR_DATABASE_URL"] = "postgresql://a:b@c:5432/d"
    return result


def _needs(service: str, field: str) -> None:
    if field not in _settings(service).model_fields:
        pytest.skip(f"{service} has no setting {field} yet")


@pytest.mark.parametrize("scenario", SCENARIOS)
@pytest.mark.parametrize("service", SERVICES)
def test_services_accept_all_variables_of_the_chart(
    scenario: str, service: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for expected in {"orchestrator": ["launcher", "executor_name"], "judge": ["internal_token"]}.get(service, []):
        _needs(service, expected)
    for name in [name for name in os.environ if name.startswith("DRESSAGE_")]:
        monkeypatch.delenv(name)
    output = _variables(scenario, service)
    for name, value in output.items():
        monkeypatch.setenv(name, value)
    settings = _settings(service)
    prefix = settings.model_config["env_prefix"]
    fields = {f"{prefix}{field.upper()}" for field in settings.model_fields}
    ours = {name for name in output if name.startswith(prefix)}
    assert ours <= fields, f"no settings: {sorted(ours - fields)}"
    assert len(ours) >= 7
    settings()  # raises for a bad value


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_the_store_accepts_its_variables(scenario: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "ca.crt").write_text("")
    output = {
        name: value for name, value in _variables(scenario, "renderer").items() if name.startswith("DRESSAGE_S3_")
    }
    assert {name.removeprefix("DRESSAGE_S3_").lower() for name in output} <= S3Options.model_fields.keys()
    for name, value in output.items():
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
