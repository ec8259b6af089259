"""`eval`, `export` and results use the policy of a session that did not end by itself, and say where it is from."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import dressage
import pytest
from dressage.api.v1 import session_pb2
from dressage.cli.main import invoke
from dressage.sdk.results import rows

from tests.fakes.orchestrator import Background, FakeOrchestrator
from tests.unit.policies.test_policies_bundle import make_policy, saved

MEMBER = "sessions/s1/iterations/1/assignments/train/members/default-s0"
ORIGIN = "iteration 1, default-s0, checkpoint at 400,000 steps, score 1.00; the session was cancelled"


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Background]:
    session = session_pb2.Session(name="sessions/s1", state=session_pb2.SESSION_STATE_CANCELLED, method="reward")
    session.spec.environment, session.best_policy = "environments/Hopper-v5", f"{MEMBER}/policies/400000"
    origin = session.policy_origin
    origin.iteration, origin.member, origin.env_step = "sessions/s1/iterations/1", MEMBER, 400_000
    origin.score, origin.interrupted = 1.0, True
    fake = FakeOrchestrator(ended=session)
    fake.sessions["sessions/s1"] = session
    folder = saved(make_policy(), tmp_path / "bundle")
    fake.artifacts = {f"{session.best_policy}/{path.name}": path.read_bytes() for path in Path(folder).iterdir()}
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DRESSAGE_HOME", str(tmp_path / "home"))
    with Background(fake) as running:
        monkeypatch.setenv("DRESSAGE_ADDRESS", running.address)
        yield running


def test_commands_and_results_name_the_delivered_checkpoint(
    server: Background, capsys: pytest.CaptureFixture[str]
) -> None:
    assert invoke(["eval", "s1", "--episodes", "1", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["policy_from"] == ORIGIN
    assert invoke(["export", "s1", "--format", "onnx", "--out", "p.onnx"]) == 0
    assert f"policy: {ORIGIN}" in capsys.readouterr().err and Path("p.onnx").exists()
    result = dressage.result("s1", address=server.address)
    assert ("best", ORIGIN) in rows(result) and result.policy.description.environment == "Hopper-v5"
