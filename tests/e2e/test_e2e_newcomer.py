"""The steps of the README with little training: run, list, render, export, grpcurl."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import av
import numpy as np
import pytest
from dressage.api.v1 import session_pb2 as pb
from dressage.policies import load
from serving import DRESSAGE, Server, run_cli, trainers_of

GRPCURL = str(Path(sys.executable).with_name("grpcurl"))
PUBLIC = ("SessionService", "EnvironmentService", "IntentService", "ArtifactService", "BenchmarkService")


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A data folder with one short hopping session, and the session's id."""
    data = tmp_path_factory.mktemp("newcomer") / "data"
    ran = run_cli(
        "run",
        "hop forward",
        "--env",
        "Hopper-v5",
        "--seeds",
        "2",
        "--steps",
        "20000",
        "--iterations",
        "1",
        "--data-dir",
        str(data),
        "--yes",
        "--json",
    )
    assert ran.returncode == 0, ran.stderr
    shown = json.loads(run_cli("sessions", "list", "--data-dir", str(data), "--json").stdout)
    sessions = shown["sessions"] if isinstance(shown, dict) else shown
    assert len(sessions) == 1
    return data, sessions[0]["name"].removeprefix("sessions/")


def test_the_session_ends_with_policy_and_video(trained: tuple[Path, str], tmp_path: Path):
    data, session = trained
    videos = list((data / "artifacts").rglob("*.mp4"))
    assert videos
    with av.open(str(videos[0])) as video:
        stream = video.streams.video[0]
        assert (stream.codec_context.name, stream.width, stream.height) == ("h264", 480, 480)
        assert float(stream.average_rate) == pytest.approx(30.0)
    rendered = tmp_path / "again.mp4"
    assert run_cli("render", session, "--data-dir", str(data), "-o", str(rendered)).returncode == 0
    assert rendered.stat().st_size > 1000


def test_bundle_onnx_and_sb3_give_equal_actions(trained: tuple[Path, str], tmp_path: Path):
    onnxruntime = pytest.importorskip("onnxruntime")
    stable_baselines3 = pytest.importorskip("stable_baselines3")
    vec_env = pytest.importorskip("stable_baselines3.common.vec_env")
    gymnasium = pytest.importorskip("gymnasium")
    data, _ = trained
    bundle = next((data / "artifacts").rglob("policy.safetensors")).parent
    exported = tmp_path / "sb3"
    done = run_cli("export", str(bundle), "--format", "sb3", "-o", str(exported), "--data-dir", str(data))
    assert done.returncode == 0, done.stderr
    observations = np.random.default_rng(0).normal(scale=2.0, size=(64, 11)).astype(np.float32)
    ours = load(bundle).act(observations)
    session = onnxruntime.InferenceSession(str(bundle / "policy.onnx"), providers=["CPUExecutionProvider"])
    theirs = session.run(None, {session.get_inputs()[0].name: observations})[0]
    np.testing.assert_allclose(theirs, ours, atol=1e-4)
    model = stable_baselines3.PPO.load(exported / "policy.zip", device="cpu")
    inner = vec_env.DummyVecEnv([lambda: gymnasium.make("Hopper-v5")])
    normalize = vec_env.VecNormalize.load(str(exported / "vecnormalize.pkl"), inner)
    actions, _ = model.predict(normalize.normalize_obs(observations), deterministic=True)
    np.testing.assert_allclose(actions, ours, atol=1e-4)


def test_grpcurl_lists_and_calls_every_public_method(trained: tuple[Path, str], monkeypatch: pytest.MonkeyPatch):
    data, session = trained
    with Server(data) as server, server.client() as client:
        address = client.address
        token = json.loads((data / "server.json").read_text())["token"]
        monkeypatch.setenv("DRESSAGE_TOKEN", token)
        listed = _grpcurl(address, "list").split()
        assert {f"dressage.v1.{service}" for service in PUBLIC} <= set(listed)
        name = f"sessions/{session}"
        assignment = client.get_assignment(f"{name}/iterations/1/assignments/train")
        rollout = assignment.members[0].evaluations[-1].rollouts[0].artifact
        calls = _requests(name, rollout)
        methods = {
            m.split(".")[-2] + "/" + m.split(".")[-1]
            for service in PUBLIC
            for m in _grpcurl(address, "list", f"dressage.v1.{service}").split()
        }
        assert methods == set(calls), "a public method is without a call here"
        for method, request in calls.items():
            _grpcurl(address, f"dressage.v1.{method}", request=request)


def _requests(name: str, rollout: str) -> dict[str, dict[str, object]]:
    """A request for every public method that the server answers without an error, in an order that works."""
    spec = {
        "intent": "balance",
        "environment": "environments/InvertedPendulum-v5",
        "max_iterations": 1,
        "approve_before_evaluation": True,
        "reward": {"seeds": 1, "steps_per_member": 4096, "evaluations": 1, "evaluation_episodes": 1},
    }
    created = "sessions/by-grpcurl"
    return {
        "EnvironmentService/ListEnvironments": {},
        "EnvironmentService/GetEnvironment": {"name": "environments/Hopper-v5"},
        "EnvironmentService/GetEnvironmentModel": {"name": "environments/Hopper-v5"},
        "IntentService/Elicit": {"intent": "hop forward", "environment": "environments/Hopper-v5"},
        "SessionService/EstimateSession": {"spec": spec},
        "SessionService/CreateSession": {"spec": spec, "session_id": "by-grpcurl"},
        "SessionService/SteerSession": {"name": created, "note": "gently"},
        "SessionService/ApproveSession": {"name": created},
        "SessionService/CancelSession": {"name": created},
        "SessionService/WatchSession": {"name": name},
        "SessionService/GetSession": {"name": name},
        "SessionService/ListSessions": {},
        "SessionService/ListPools": {},
        "SessionService/GetIteration": {"name": f"{name}/iterations/1"},
        "SessionService/ListIterations": {"parent": name},
        "SessionService/GetRun": {"name": f"{name}/runs/r1"},
        "SessionService/ListRuns": {"parent": name},
        "SessionService/ReadRunLog": {"name": f"{name}/runs/r1"},
        "SessionService/GetAssignment": {"name": f"{name}/iterations/1/assignments/train"},
        "SessionService/ListAssignments": {"parent": f"{name}/iterations/-"},
        "SessionService/GetLineage": {"name": name},
        "SessionService/LabelRollout": {"rollout": rollout, "score": 0.5},
        "ArtifactService/ListArtifacts": {"prefix": f"{name}/"},
        "ArtifactService/GetArtifact": {"key": rollout},
        "ArtifactService/ReadArtifact": {"key": rollout},
        "ArtifactService/GetRolloutPoses": {"rollout": rollout},
        "ArtifactService/GetRolloutVideo": {"rollout": rollout},
        "BenchmarkService/ListBenchmarks": {},
        "BenchmarkService/CreateBenchmark": {
            "cases": [{"intent": "balance", "environment": "environments/InvertedPendulum-v5"}],
            "template": {"reward": {"seeds": 1, "steps_per_member": 4096}},
            "request_id": "once",
        },
        "BenchmarkService/GetBenchmark": {"name": "benchmarks/$created"},
        "BenchmarkService/CancelBenchmark": {"name": "benchmarks/$created"},
        "BenchmarkService/WatchBenchmark": {"name": "benchmarks/$created"},
        "SessionService/DeleteSession": {"name": created, "force": True},
        "SessionService/UndeleteSession": {"name": created},
        "SessionService/ResumeSession": {"name": created},
    }


_created: dict[str, str] = {}


def _grpcurl(address: str, *arguments: str, request: dict[str, object] | None = None) -> str:
    header = f"authorization: Bearer {os.environ['DRESSAGE_TOKEN']}"
    command = [GRPCURL, "-plaintext", "-max-time", "60", "-H", header]
    if request is not None:
        text = json.dumps(request).replace("benchmarks/$created", _created.get("benchmark", ""))
        command += ["-d", text]
    for _ in range(120):
        done = subprocess.run([*command, address, *arguments], capture_output=True, text=True, timeout=90)
        if "NOTHING_TO_APPROVE" not in done.stderr:  # the proposal comes in its own time
            break
        time.sleep(0.5)
    assert done.returncode == 0, f"{arguments}: {done.stderr}"
    if arguments[-1].endswith("CreateBenchmark"):
        _created["benchmark"] = json.loads(done.stdout)["name"]
    return done.stdout


def test_the_state_of_a_session_is_shown(trained: tuple[Path, str]):
    data, session = trained
    shown = json.loads(run_cli("sessions", "show", session, "--data-dir", str(data), "--json").stdout)
    states = {pb.SessionState.Name(pb.SESSION_STATE_SUCCEEDED), pb.SessionState.Name(pb.SESSION_STATE_EXHAUSTED)}
    assert json.dumps(shown).count("SESSION_STATE_") and any(state in json.dumps(shown) for state in states)


def test_a_per_step_reward_class_trains(tmp_path: Path):
    """The form of Prompt2Policy's user guide, from a file."""
    reward = Path(__file__).parents[2] / "examples" / "rewards" / "per_step_forward.py"
    ran = run_cli(
        *("train", str(reward), "--env", "HalfCheetah-v5", "--env-option", "max_episode_steps=100"),
        *("--seeds", "1", "--steps", "6000", "--json"),
        *("--data-dir", str(tmp_path / "data")),
    )
    assert ran.returncode == 0, ran.stderr
    assert "SESSION_STATE_SUCCEEDED" in ran.stdout
    assert list((tmp_path / "data").rglob("policy.safetensors"))


def test_ctrl_c_cancels_the_session_and_leaves_nothing_running(tmp_path: Path):
    command = [DRESSAGE, "run", "run forward fast", "--env", "HalfCheetah-v5", "--yes", "--data-dir", str(tmp_path)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert process.stdout is not None
    seen = []
    for line in process.stdout:  # ends with the process
        seen.append(line)
        if "run r1 running" in line:
            process.send_signal(signal.SIGINT)
    assert process.wait(60) == 130, "".join(seen)
    shown = json.loads(run_cli("sessions", "list", "--data-dir", str(tmp_path), "--json").stdout)
    assert [session["state"] for session in shown["sessions"]] == ["SESSION_STATE_CANCELLED"]
    assert not trainers_of(shown["sessions"][0]["name"])
