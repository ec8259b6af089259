"""Values: documented, checked before anything is installed, and refused in words."""

from __future__ import annotations

import base64
import importlib.util
import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.unit.chart.rendering import CHART, ROOT, helm, template


def _tool() -> Any:
    spec = importlib.util.spec_from_file_location("chart_readme", ROOT / "tools" / "chart_readme.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


BAD = [
    (["orchestrator.replicas=many"], "replicas", "integer"),
    (["orchestrator.replica=2"], "replica", "orchestrator"),
    (["log.level=loud"], "level", "debug"),
    (["image.pullPolicy=Sometimes"], "pullPolicy", "IfNotPresent"),
    (["minio.persistence.size=big"], "size", "pattern"),
    (["networkPolicy.llmExcept={ten}"], "llmExcept", "pattern"),
    (["pools.cpu.gpu=1"], "gpu", "pools"),
    (["pools.Big.image=x"], "Big", "pattern"),
    (["externalStore.url=https://s3.example.org"], "url", "s3"),
    (["monitoring.serviceMonitor.interval=15"], "interval", "string"),
    (["judge.sandboxes=0"], "sandboxes", "1"),
    (["store.bucket=My_Bucket"], "bucket", "pattern"),
    (["nonsense=1"], "nonsense", "not allowed"),
    # What a schema cannot say.
    (["postgresql.enabled=false"], "externalDatabase.existingSecret", "postgresql.enabled is false"),
    (["minio.enabled=false"], "externalStore.url", "s3://BUCKET"),
    (["minio.enabled=false", "externalStore.url=s3://bucket/b"], "networkPolicy.externalStore.cidrs", "10.1.2.4/32"),
    (["ingress.enabled=true"], "ingress.host", "host name"),
    (["ingress.enabled=true", "ingress.host=a.b", "ingress.console.host=a.b"], "ingress.console.host", "another host"),
    (["tls.issuer.kind=Authority"], "kind", "ClusterIssuer"),
    (["trainer.defaultPool=gpu"], "trainer.defaultPool", "cpu"),
]


@pytest.mark.parametrize(("settings", "named", "message"), BAD, ids=[entry[0][0] for entry in BAD])
def test_bad_values_are_refused_with_a_message_that_names_them(settings: list[str], named: str, message: str) -> None:
    done = template(*(word for setting in settings for word in ("--set", setting)))
    assert done.returncode != 0
    assert named in done.stderr and message in done.stderr, done.stderr
    assert "nil pointer" not in done.stderr


def test_readme_is_current_and_every_value_documented() -> None:
    tool = _tool()
    assert (CHART / "README.md").read_text() == tool.render(), "run tools/chart_readme.py"
    with pytest.raises(tool.MissingComment, match=r"b\.c"):
        tool.parse_values("# -- A.\na: 1\nb:\n  c: 2\n  # -- D.\n  d: 3\n")


def test_schema_has_every_value_and_no_other() -> None:
    """Compare both ways, down to where the schema allows any value."""
    schema = json.loads((CHART / "values.schema.json").read_text())

    def compare(values: object, part: dict[str, object], path: str) -> None:
        properties = part.get("properties")
        if not isinstance(values, dict) or not isinstance(properties, dict) or "$ref" in part:
            return
        assert values.keys() <= properties.keys(), path
        assert properties.keys() - {"global"} == values.keys(), f"{path}: in the schema alone"
        for name, value in values.items():
            compare(value, properties[name], f"{path}.{name}")

    compare(yaml.safe_load((CHART / "values.yaml").read_text()), schema, "values")


def test_generated_secrets_are_long_and_differ() -> None:
    done = template("--show-only", "templates/secrets.yaml")
    opaque = [entry for entry in yaml.safe_load_all(done.stdout) if entry and entry["type"] == "Opaque"]
    data = [value for entry in opaque for value in entry["data"].values()]
    assert len(data) == 10 and len(set(data)) == 10
    assert sorted(len(base64.b64decode(value)) for value in data) == [20] + [40] * 9


def test_notes_hold_the_next_three_commands(tmp_path: Path) -> None:
    # Helm shows notes only where there is a cluster: here they are rendered as a value of a manifest.
    chart = shutil.copytree(CHART, tmp_path / "dressage")
    notes = (chart / "templates" / "NOTES.txt").read_text()
    (chart / "templates" / "_notes.tpl").write_text('{{ define "notes" }}' + notes + "{{ end }}")
    (chart / "templates" / "notes.yaml").write_text('notes: {{ include "notes" . | toJson }}')
    done = helm("template", "r", str(chart), "--namespace", "lab", "--show-only", "templates/notes.yaml")
    notes = yaml.safe_load(done.stdout)["notes"]
    for line in (
        "kubectl --namespace lab port-forward service/r-dressage-orchestrator 7400:50051",
        "kubectl --namespace lab get secret r-dressage-auth",
        "export DRESSAGE_CA_FILE=",
        'dressage run "run forward fast"',
        "kubectl --namespace lab port-forward service/r-dressage-console 8080:8080, then https://localhost:8080/",
    ):
        assert line in notes
    assert "template author" in notes and "r-dressage-postgresql" in notes
