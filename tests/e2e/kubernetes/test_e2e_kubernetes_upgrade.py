"""`helm upgrade` during a training loses nothing; `helm uninstall` keeps what its notes list. Runs last in this folder."""

from __future__ import annotations

import os

import pytest
from dressage.api.v1 import session_pb2 as pb

from tests.e2e.kubernetes.installation import RELEASE, SERVICES, Installation
from tests.e2e.kubernetes.trainings import call, ended, jobs, pods, run_of, trained, training, weights
from tests.servers.kubernetes import helm, until

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(2400)]

STEPS = int(os.environ.get("DRESSAGE_E2E_FAULT_STEPS", "800000")) // 2


def test_an_upgrade_in_the_middle_of_a_training_loses_nothing(installed: Installation) -> None:
    call(installed, lambda client: client.create_session(training(STEPS), session_id="before"))
    assert ended(installed, "before").state == pb.SESSION_STATE_SUCCEEDED
    call(installed, lambda client: client.create_session(training(STEPS), session_id="upgraded"))
    pod, _ = trained(installed, "upgraded", attempt=1)
    token = installed.token
    was = {name: installed.pod(name) for name in SERVICES}
    uids = {name: installed.pods(name)[0]["metadata"]["uid"] for name in SERVICES}
    installed.upgrade({"log": {"level": "debug"}})
    installed.ready()
    now = {name: installed.pods(name)[0]["metadata"]["uid"] for name in SERVICES}
    assert all(now[name] != uids[name] for name in SERVICES), (was, now)
    assert installed.token == token
    assert ended(installed, "upgraded").state == pb.SESSION_STATE_SUCCEEDED, installed.space.diagnosis()
    run = call(installed, lambda client: client.get_run(run_of("upgraded")))
    assert run.attempt == 1, run
    assert [entry["metadata"]["name"] for entry in pods(installed, "upgraded")] == [pod]
    assert len(jobs(installed, "upgraded")) == 1
    assert weights(installed, "upgraded") == weights(installed, "before")


def test_uninstalling_keeps_the_volumes_and_their_password(installed: Installation) -> None:
    space = installed.space
    call(installed, lambda client: client.create_session(training(100_000_000), session_id="last"))
    trained(installed, "last", attempt=1)
    output = helm(space, "uninstall", RELEASE, "--wait", "--timeout", "10m")
    kinds = space.run("api-resources", "--verbs=list", "--namespaced", "-o", "name").split()
    kinds = [kind for kind in kinds if not kind.startswith(("events", "endpointslices", "leases"))]
    selector = f"app.kubernetes.io/instance={RELEASE}"

    def left() -> set[str]:
        return set(space.run("get", ",".join(kinds), "-l", selector, "-o", "name").split())

    kept = {"persistentvolumeclaim/data-dressage-minio-0", "persistentvolumeclaim/data-dressage-postgresql-0"}
    kept |= {"secret/dressage-postgresql"}
    until(lambda: left() == kept, seconds=180, what=f"only volumes are left; {left()}")
    assert "dressage-postgresql" in output, output
