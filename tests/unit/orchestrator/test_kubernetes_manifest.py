"""The Job of a run: valid by Kubernetes's own schemas, restricted, deterministic, and named within bounds."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
from dressage.errors import InvalidArgument
from dressage_orchestrator.launch.kubernetes.manifest import Installation, Owner, job_manifest, job_name
from dressage_orchestrator.launch.kubernetes.pools import Pool, load_pools, parse_pools, parse_quantity
from dressage_orchestrator.launch.protocol import Launch
from dressage_trainer.settings import TrainerSettings
from hypothesis import given
from hypothesis import strategies as st

RUN = "sessions/run-forward/runs/r3"
LAUNCH = Launch(RUN, 4, "orchestrator.dressage.svc:50051", "9.4-10003.secret-signature", "gpu")
INSTALLATION = Installation("dressage", "release", owner=Owner("release-pools", "11111111-2222-3333-4444-555555555555"))
FULL = {
    "image": "registry.example/dressage-trainer-gpu:1",
    "imagePullPolicy": "Always",
    "imagePullSecrets": ["registry"],
    "command": ["python", "-m", "dressage_trainer"],
    "env": {"XLA_FLAGS": "--x", "DRESSAGE_RUN_TOKEN": "not this one"},
    "resources": {"requests": {"cpu": "1500m", "memory": "2Gi"}, "limits": {"nvidia.com/gpu": 1, "cpu": "2500m"}},
    "nodeSelector": {"accelerator": "gpu"},
    "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}],
    "affinity": {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}]
            }
        }
    },
    "priorityClass": "batch",
    "runtimeClass": "gvisor",
    "serviceAccount": "trainer",
    "labels": {"team": "motion", "app.kubernetes.io/component": "forged"},
    "annotations": {"note": "x"},
    "queue": "dressage-gpu",
    "shmSize": "1Gi",
    "scratchMedium": "Memory",
    "caConfigMap": "store-ca",
    "allowUnsandboxed": True,
}


def gpu_pool() -> Pool:
    return parse_pools({"pools": {"gpu": FULL}})["gpu"]


def manifest(pool: Pool | None = None, launch: Launch = LAUNCH) -> dict[str, Any]:
    return job_manifest(launch, pool or gpu_pool(), INSTALLATION)


@pytest.mark.parametrize("version", ["1.29", "1.33", "1.35"])
@pytest.mark.parametrize("pool", [gpu_pool(), Pool(image="trainer:1")], ids=["full", "least"])
def test_the_job_is_valid_by_the_schemas_of_old_and_new_servers(pool: Pool, version: str) -> None:
    kubernetes_validate.validate(manifest(pool), version, strict=True)
    broken = manifest(pool)
    broken["spec"]["backofLimit"] = 1
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(broken, version, strict=True)


def test_the_pod_is_restricted_and_has_no_account() -> None:
    pod = manifest()["spec"]["template"]["spec"]
    container = pod["containers"][0]
    assert pod["automountServiceAccountToken"] is False and pod["enableServiceLinks"] is False
    assert pod["restartPolicy"] == "Never" and pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    security = container["securityContext"]
    assert security["capabilities"] == {"drop": ["ALL"]} and security["allowPrivilegeEscalation"] is False
    assert security["readOnlyRootFilesystem"] is True
    assert all("sizeLimit" in volume["emptyDir"] for volume in pod["volumes"] if "emptyDir" in volume)
    writable = {mount["mountPath"] for mount in container["volumeMounts"] if not mount.get("readOnly")}
    assert writable == {"/tmp", "/dev/shm"}
    assert {"name": "DRESSAGE_S3_CA_FILE", "value": "/etc/dressage/store-ca/ca.crt"} in container["env"]


def test_disruptions_and_checkpointed_pods_are_not_counted_by_the_job() -> None:
    spec = manifest()["spec"]
    disrupted, checkpointed = spec["podFailurePolicy"]["rules"]
    assert (disrupted["action"], disrupted["onPodConditions"][0]["type"]) == ("Ignore", "DisruptionTarget")
    assert (checkpointed["action"], checkpointed["onExitCodes"]["values"]) == ("Ignore", [75])
    assert spec["backoffLimitPerIndex"] == 3 and spec["activeDeadlineSeconds"] == 86400
    assert spec["ttlSecondsAfterFinished"] == 3600 and spec["podReplacementPolicy"] == "Failed"
    assert spec["suspend"] is True  # it has a queue
    assert "suspend" not in manifest(Pool(image="i"))["spec"]


def test_labels_owner_and_queue() -> None:
    job = manifest()
    labels = job["metadata"]["labels"]
    assert labels["app.kubernetes.io/component"] == "trainer" and labels["team"] == "motion"
    assert labels["dressage.io/session"] == "run-forward" and labels["dressage.io/run"] == "r3"
    assert labels["dressage.io/pool"] == "gpu" and labels["kueue.x-k8s.io/queue-name"] == "dressage-gpu"
    assert job["metadata"]["annotations"]["dressage.io/run"] == RUN
    assert job["metadata"]["ownerReferences"][0]["uid"] == INSTALLATION.owner.uid  # type: ignore[union-attr]
    selected = dict(part.split("=") for part in INSTALLATION.selector.split(","))
    assert selected.items() <= labels.items()
    assert selected.items() <= job["spec"]["template"]["metadata"]["labels"].items()


def test_the_trainer_parses_its_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    variables = {entry["name"]: entry for entry in manifest()["spec"]["template"]["spec"]["containers"][0]["env"]}
    assert variables["DRESSAGE_RUN_TOKEN"]["value"] == LAUNCH.token  # a pool cannot replace it
    for name, entry in variables.items():
        # An annotation that is absent, as on a first pod, gives an empty string.
        monkeypatch.setenv(name, entry.get("value", ""))
    settings = TrainerSettings()  # type: ignore[call-arg]
    assert (settings.run, settings.address, settings.effective_attempt) == (RUN, LAUNCH.address, 4)
    assert settings.allow_unsandboxed
    monkeypatch.setenv("DRESSAGE_RUN_FAILED_BEFORE", "1")
    monkeypatch.setenv("DRESSAGE_RUN_INTERRUPTED_BEFORE", "2")
    assert TrainerSettings().effective_attempt == 7  # type: ignore[call-arg]


@pytest.mark.parametrize(("deadline", "seconds"), [(0.0, 86340.0), (600.0, 600.0), (90000.0, 86340.0)])
def test_the_trainers_deadline_precedes_that_of_its_job(deadline: float, seconds: float) -> None:
    launch = Launch(RUN, 4, "o:1", "token", "gpu", deadline_seconds=deadline)
    job = manifest(Pool(image="i", grace_seconds=60), launch)
    variables = {e["name"]: e.get("value", "") for e in job["spec"]["template"]["spec"]["containers"][0]["env"]}
    assert job["spec"]["activeDeadlineSeconds"] == 86400
    assert float(variables["DRESSAGE_RUN_DEADLINE_SECONDS"]) == seconds


@given(
    session=st.from_regex(r"[a-z][a-z0-9-]{0,62}", fullmatch=True),
    run=st.from_regex(r"[a-z0-9-]{1,63}", fullmatch=True),
    attempt=st.integers(1, 20_000),
)
def test_names_are_host_names_of_bounded_length(session: str, run: str, attempt: int) -> None:
    full = f"sessions/{session}/runs/{run}"
    name = job_name("release", full, attempt)
    assert len(name) <= 61 and re.fullmatch(r"[a-z]([a-z0-9-]*[a-z0-9])?", name)
    assert name == job_name("release", full, attempt)
    assert name != job_name("other", full, attempt) and name != job_name("release", full, attempt + 1)


def test_pools_are_read_and_refused_by_field(tmp_path: Path) -> None:
    path = tmp_path / "pools.json"
    path.write_text(json.dumps({"pools": {"cpu": {"image": "i"}, "gpu": FULL}}))
    pools = load_pools(path)
    assert pools["cpu"].usable_cores == 1 and pools["gpu"].usable_cores == 3
    for text, part in (
        ("no JSON", "JSON file"),
        ('{"pools": {}}', "pools"),
        ('{"pools": {"cpu": {}}}', "pools.cpu.image"),
        ('{"pools": {"cpu": {"image": "i", "imagePolicy": "x"}}}', "pools.cpu.imagePolicy"),
        ('{"pools": {"cpu": {"image": "i", "scratchSize": "4 GB"}}}', "pools.cpu.scratchSize"),
        ('{"pools": {"CPU": {"image": "i"}}}', "lower-case"),
        ('{"pools": {"cpu": {"image": "i", "deadlineSeconds": 60}}}', "graceSeconds"),
    ):
        path.write_text(text)
        with pytest.raises(InvalidArgument) as caught:
            load_pools(path)
        assert part in f"{caught.value.message} {caught.value.metadata}", caught.value.message


def test_quantities() -> None:
    assert parse_quantity("500m") == 0.5 and parse_quantity("2") == 2 and parse_quantity("1Ki") == 1024
    with pytest.raises(InvalidArgument):
        parse_quantity("two")
