"""Pods as strangers: what a trainer can reach and holds, and that every pod meets Pod Security *restricted*."""

from __future__ import annotations

import json
from typing import Any

import pytest
from dressage.api.v1 import session_pb2 as pb

from tests.e2e.kubernetes.installation import GRPC, HTTP, METRICS, POSTGRESQL, S3, SERVICES, Installation
from tests.e2e.kubernetes.provider import Provider
from tests.e2e.kubernetes.trainings import call, ended, jobs, pods, trained, training
from tests.servers.kubernetes import until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1200)]

_PROBE = """
import json, os, pathlib, socket, sys
from concurrent.futures import ThreadPoolExecutor

def reaches(target):
    try:
        socket.create_connection(target, timeout=5).close()
        return True
    except OSError:
        return False

targets = json.loads(sys.argv[1])
with ThreadPoolExecutor(16) as pool:
    reached = dict(zip(targets, pool.map(reaches, map(tuple, targets.values()))))
account = pathlib.Path("/var/run/secrets/kubernetes.io/serviceaccount")
keys = [name for name in os.environ if name.startswith(("DRESSAGE_S3_ACCESS", "DRESSAGE_S3_SECRET", "AWS_", "OPENAI"))]
print(json.dumps({"reached": reached, "token": account.exists(), "keys": keys, "uid": os.getuid()}))
"""


def probed(installed: Installation, pod: str, targets: dict[str, tuple[str, int]]) -> dict[str, Any]:
    """What a program in a pod reaches and finds."""
    result: dict[str, Any] = json.loads(
        installed.space.run("exec", pod, "--", "python", "-c", _PROBE, json.dumps(targets))
    )
    return result


def targets(installed: Installation) -> dict[str, tuple[str, int]]:
    """Addresses of all components."""
    address = {
        name: str(installed.pods(name)[0]["status"]["podIP"]) for name in (*SERVICES, "console", "postgresql", "minio")
    }
    api = json.loads(installed.space.run("get", "service", "kubernetes", "-n", "default", "-o", "json"))
    return {
        "API server": (api["spec"]["clusterIP"], 443),
        "internet": ("1.1.1.1", 443),
        "metadata": ("169.254.169.254", 80),
        **{name: (address[name], GRPC) for name in SERVICES},
        **{f"{name} metrics": (address[name], METRICS) for name in SERVICES},
        "console": (address["console"], HTTP),
        "postgresql": (address["postgresql"], POSTGRESQL),
        "minio": (address["minio"], S3),
    }


def test_a_trainer_reaches_the_orchestrator_and_the_store_alone(installed: Installation) -> None:
    session = "stranger"
    everything = targets(installed)
    call(installed, lambda client: client.create_session(training(100_000_000), session_id=session))
    pod, _ = trained(installed, session, attempt=1)
    result = probed(installed, pod, everything)
    assert {name for name, reached in result["reached"].items() if reached} == {"orchestrator", "minio"}
    assert result["token"] is False and result["keys"] == [] and result["uid"] == 10001
    # It is the policies that keep it: a pod that none of them selects reaches the API server.
    Provider(installed.space, "one_revision.py", name="bystander").start()
    free = probed(installed, "bystander", everything)["reached"]
    assert free["API server"] and not any(free[name] for name in (*SERVICES, "console", "postgresql", "minio")), free
    # And each service reaches what DESIGN's arrows say.
    judge = probed(installed, installed.pod("judge"), everything)["reached"]
    assert {name for name, reached in judge.items() if reached} == {
        "judge",
        "judge metrics",
        "llm-agent",
        "renderer",
        "minio",
    }
    call(installed, lambda client: client.cancel_session(session))
    assert ended(installed, session).state == pb.SESSION_STATE_CANCELLED
    until(lambda: not pods(installed, session) and not jobs(installed, session), seconds=120, what="its Job goes")


def test_every_pod_is_restricted_and_only_the_orchestrator_has_a_token(installed: Installation) -> None:
    space = installed.space
    labels = json.loads(space.run("get", "namespace", space.name, "-o", "json"))["metadata"]["labels"]
    assert labels["pod-security.kubernetes.io/enforce"] == "restricted"
    loose = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "loose"}}
    loose["spec"] = {"containers": [{"name": "loose", "image": "none"}]}
    with pytest.raises(AssertionError, match='violates PodSecurity "restricted'):
        space.apply(loose)
    events = space.get("events")
    assert not [event for event in events if "violates PodSecurity" in (event.get("message") or "")]
    for pod in space.get("pods"):
        mounts = [mount["mountPath"] for container in pod["spec"]["containers"] for mount in container["volumeMounts"]]
        holds = "/var/run/secrets/kubernetes.io/serviceaccount" in mounts
        assert holds == (pod["metadata"]["labels"].get("app.kubernetes.io/component") == "orchestrator"), pod[
            "metadata"
        ]
