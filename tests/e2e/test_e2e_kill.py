"""kill -9 of the whole stack during training: the session continues, and its weights equal those of an undisturbed run."""

from __future__ import annotations

import hashlib
import time
from pathlib import Path

from dressage import errors
from dressage.api.v1 import session_pb2 as pb
from dressage.client import Client
from serving import Server, run_cli, trainers_of

# A reward with memory, so that the checkpoint has to carry it.
REWARD = """
LATEX = r"1 - \\theta^2"
TERMS = {"alive": "1 for every step", "angle": "cost of the squared angle", "best": "share of the longest balance"}
MEMORY = {"steps": 0.0}

def reward(state, action, next_state, memory, np):
    memory.steps = memory.steps + 1.0
    return {
        "alive": np.ones_like(next_state.pole_angle),
        "angle": -np.square(next_state.pole_angle / 0.2),
        "best": 0.001 * memory.steps,
    }
"""


def _spec() -> pb.SessionSpec:
    return pb.SessionSpec(
        intent="balance the pole",
        environment="environments/InvertedPendulum-v5",
        reward=pb.RewardSpec(
            reward_source=REWARD,
            train_only=True,
            seeds=2,
            steps_per_member=60_000,
            evaluations=3,
            evaluation_episodes=3,
        ),
    )


def _weights(data_dir: Path) -> dict[str, str]:
    result = sorted(
        (data_dir / "artifacts").glob("sessions/*/iterations/1/assignments/train/members/*/policy/policy.safetensors")
    )
    return {path.parts[-3]: hashlib.sha256(path.read_bytes()).hexdigest() for path in result}


def _wait_for_checkpoint(client: Client, assignment: str, least_steps: int) -> None:
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        try:
            steps = [member.env_steps for member in client.get_assignment(assignment).members]
        except errors.NotFound:  # the reward is still being checked
            steps = []
        if steps and min(steps) >= least_steps:
            return
        time.sleep(0.1)
    raise AssertionError("the training makes no progress")


def _wait_for_no_trainer(run: str) -> None:
    """Trainers die with their server."""
    deadline = time.monotonic() + 10
    while trainers_of(run):
        assert time.monotonic() < deadline, "a trainer outlives its server"
        time.sleep(0.1)


def _listed(data_dir: Path) -> str:
    """Output of `sessions list` on one line."""
    output = run_cli("sessions", "list", "--data-dir", str(data_dir), timeout=60)
    assert output.returncode == 0, output.stderr
    return " ".join(output.stdout.split())


def test_a_killed_server_continues_to_the_same_weights(tmp_path: Path):
    calm = tmp_path / "calm"
    with Server(calm) as server, server.client() as client:
        client.create_session(_spec(), session_id="calm")
        assert client.wait_session("calm").state == pb.SESSION_STATE_SUCCEEDED
    rough = tmp_path / "rough"
    server = Server(rough)
    server.start()
    with server.client() as client:
        client.create_session(_spec(), session_id="rough")
        _wait_for_checkpoint(client, "sessions/rough/iterations/1/assignments/train", 20_000)
        checkpoints = list((rough / "artifacts").glob("sessions/rough/iterations/1/assignments/train/checkpoints/*"))
        assert checkpoints, "nothing was checkpointed before the kill: the test would prove nothing"
        assert "interrupted" not in _listed(rough)
    server.kill()
    _wait_for_no_trainer("sessions/rough/")
    assert f"dressage sessions watch rough --data-dir {rough}" in _listed(rough)
    with server, server.client() as client:
        session = client.wait_session("rough")
        assert session.state == pb.SESSION_STATE_SUCCEEDED, session
        assert client.get_run("sessions/rough/runs/r1").attempt >= 2
        assignment = client.get_assignment("sessions/rough/iterations/1/assignments/train")
        assert assignment.failures == 0
        for member in assignment.members:  # nothing is counted twice, nothing is lost
            steps = [evaluation.env_step for evaluation in member.evaluations]
            assert steps == sorted(set(steps)) and len(steps) == 3
    assert len(_weights(calm)) == 2
    assert _weights(rough) == _weights(calm)


def test_a_second_server_on_the_same_folder_is_refused(tmp_path: Path):
    with Server(tmp_path / "data") as server:
        second = run_cli("serve", "--data-dir", str(server.data_dir), timeout=60)
        assert second.returncode == 1
        assert "already" in second.stderr
        assert "Traceback" not in second.stderr
