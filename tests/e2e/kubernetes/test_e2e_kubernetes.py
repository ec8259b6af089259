"""One sentence on a real cluster: policy and video by the command line, by grpcurl alone, and by `helm test`."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from dressage.client import Client, Trust
from dressage.errors import PermissionDenied
from dressage.policies import load
from serving import run_cli

from tests.e2e.kubernetes.installation import RELEASE, VIEWER, Installation
from tests.e2e.kubernetes.trainings import jobs, pods, training
from tests.servers.kubernetes import helm

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(2400)]

STEPS = int(os.environ.get("DRESSAGE_E2E_STEPS", "50000"))
DOCUMENT = Path("docs/kubernetes.md")


def is_policy(folder: Path) -> bool:
    action = np.asarray(load(folder).act(np.zeros(17)))
    return action.shape == (6,) and bool(np.isfinite(action).all())


def is_video(path: Path) -> bool:
    return path.stat().st_size > 10_000 and path.read_bytes()[4:8] == b"ftyp"


def test_a_sentence_becomes_a_policy_and_a_video(installed: Installation, address: str, tmp_path: Path) -> None:
    arguments = ["run forward fast", "--env", "HalfCheetah-v5", "--steps", str(STEPS), "--seeds", "1"]
    trust = ["--ca-file", str(installed.authority(tmp_path))]
    server_options = ["--address", address, "--token", installed.token, *trust]
    options = ("--iterations", "1", "--yes", "--json", *server_options)
    done = run_cli("run", *arguments, *options, timeout=1800, folder=tmp_path)  # for the learning curve's picture
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}\n{installed.space.diagnosis()}"
    result = json.loads(done.stdout)
    session = result["session"]["name"].removeprefix("sessions/")
    for kind in ("policy", "video"):
        fetched = run_cli("artifacts", "get", result[kind]["artifact"], "-o", str(tmp_path / kind), *server_options)
        assert fetched.returncode == 0, fetched.stderr
    assert is_policy(next((tmp_path / "policy").rglob("policy.safetensors")).parent)
    assert is_video(next(path for path in [tmp_path / "video", *(tmp_path / "video").rglob("*")] if path.is_file()))
    # Training, and the confirmation on fresh seeds if it came to that: a Job each, a pod each.
    created = jobs(installed, session)
    assert 1 <= len(created) <= 2 and len(pods(installed, session)) == len(created)


def test_artifacts_are_in_minio_and_state_in_postgresql(installed: Installation) -> None:
    space, orchestrator = installed.space, installed.pod("orchestrator")
    rows = space.run(
        *("exec", installed.pod("postgresql"), "--", "psql", "-U", "dressage", "-d", "dressage", "-At", "-c"),
        "select count(*) from sessions",
    )
    assert int(rows) >= 1
    # MinIO's own files: one folder for each object of the bucket.
    program = (
        "from dressage.artifacts import open_store; import os; "
        "print(len(open_store(os.environ['DRESSAGE_ORCHESTRATOR_STORE_URL']).list('sessions/')))"
    )
    assert int(space.run("exec", orchestrator, "-c", "orchestrator", "--", "python", "-c", program).split()[-1]) > 10
    # And nowhere else: the orchestrator's own folder is thrown away with its pod.
    kept = space.run("exec", orchestrator, "-c", "orchestrator", "--", "find", "/var/lib/dressage", "-type", "f")
    assert not [path for path in kept.split() if path.endswith((".npz", ".safetensors", ".db", ".sqlite"))], kept


def documented(heading: str) -> str:
    """The first block of commands below a heading of docs/kubernetes.md."""
    text = DOCUMENT.read_text().partition(f"\n## {heading}\n")[2]
    match = re.search(r"```bash\n(.*?)```", text, re.S)
    assert match, f"no commands below {heading!r}"
    return match.group(1)


def test_grpcurl_alone_does_it_as_documented(installed: Installation, address: str, tmp_path: Path) -> None:
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = {
        **os.environ,
        "PATH": path,
        "ADDRESS": address,
        "DRESSAGE_TOKEN": installed.token,
        "DRESSAGE_CA_FILE": str(installed.authority(tmp_path)),
    }
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", documented("By grpcurl alone")],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=1800,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}\n{installed.space.diagnosis()}"
    assert is_policy(tmp_path / "policy") and is_video(tmp_path / "video.mp4")
    assert json.loads((tmp_path / "session.json").read_text())["state"] in (
        "SESSION_STATE_SUCCEEDED",
        "SESSION_STATE_EXHAUSTED",
    )


def test_the_api_requires_the_token(installed: Installation, address: str, tmp_path: Path) -> None:
    trust = ("--ca-file", str(installed.authority(tmp_path)), "--data-dir", str(tmp_path / "data"))
    for token in ((), ("--token", "not-the-token")):
        done = run_cli("sessions", "list", "--address", address, *trust, *token, DRESSAGE_TOKEN="")
        assert done.returncode == 1 and "bearer token missing or wrong. Set DRESSAGE_TOKEN" in done.stderr, done


def test_the_api_is_encrypted_and_its_certificate_verified(installed: Installation, address: str) -> None:
    options = ("--address", f"https://{address}", "--token", installed.token)
    done = run_cli("sessions", "list", *options, DRESSAGE_CA_FILE="")
    assert done.returncode == 1 and installed.token not in done.stderr, done


def test_a_viewer_reads_and_changes_nothing(installed: Installation, address: str, tmp_path: Path) -> None:
    trust = Trust(installed.authority(tmp_path))
    with Client.connect(address, VIEWER, trust=trust) as viewer:
        list(viewer.list_sessions())
        with pytest.raises(PermissionDenied, match=r"vera \(viewer\) may not call"):
            viewer.create_session(training(1000))


def test_peers_without_their_token_are_refused(installed: Installation) -> None:
    program = (
        "import grpc, sys; from dressage.api.internal.v1 import renderer_service_pb2 as pb, "
        "renderer_service_pb2_grpc as rpc; trusted = open('/etc/dressage/tls/ca.crt', 'rb').read();\n"
        "encrypted = grpc.ssl_channel_credentials(trusted)\n"
        "clear = len(sys.argv) > 2\n"
        "channel = grpc.insecure_channel(sys.argv[1]) if clear else grpc.secure_channel(sys.argv[1], encrypted)\n"
        "try: rpc.RendererServiceStub(channel).Render(pb.RenderRequest(), timeout=20)\n"
        "except grpc.RpcError as error: print(error.code().name)"
    )
    target = f"{installed.name('renderer')}.{installed.space.name}.svc:50051"
    command = ("exec", installed.pod("judge"), "--", "python", "-c", program, target)
    output = installed.space.run(*command)
    assert output.split()[-1] == "UNAUTHENTICATED", output
    output = installed.space.run(*command, "clear")
    assert output.split()[-1] == "UNAVAILABLE", "the services speak TLS alone"


def test_helm_test(installed: Installation) -> None:
    output = helm(installed.space, "test", RELEASE, "--timeout", "15m")
    assert "Phase:          Succeeded" in output, output
