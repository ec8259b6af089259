"""kill -9 of the whole stack in each step of a session with real training and judging, against a scripted provider.

Slow: a session for each step. The provider's requests and the result equal those of an undisturbed session, to the weights.
"""

from __future__ import annotations

import hashlib
import os
import runpy
import sys
from pathlib import Path

import killing
import pytest
from dressage.api.v1 import session_pb2 as pb
from openai_server import ScriptedServer
from serving import Server

FAKES = Path(__file__).parents[1] / "fakes"
SCRIPT = FAKES / "scripts" / "repair_then_revise.py"
_DEATH_SECONDS = 300


class KilledServer(Server):
    """A server that dies in a step."""

    def __init__(self, data_dir: Path, url: str, step: int) -> None:
        variables = {"OPENAI_API_KEY": "sk-test", "KILL_FOLDER": str(data_dir), "KILL_STEP": str(step)}
        super().__init__(data_dir, "--api-base", url, environment=variables)
        self._command = [sys.executable, str(FAKES / "killed_serve.py"), *self._command[2:]]

    def wait_for_death(self) -> None:
        """Blocks until it was killed."""
        assert self._process is not None
        assert self._process.wait(_DEATH_SECONDS) != 0


def _spec() -> pb.SessionSpec:
    return pb.SessionSpec(
        intent="balance the pole",
        environment="environments/InvertedPendulum-v5",
        model="openai/scripted",
        max_iterations=2,
        reward=pb.RewardSpec(seeds=1, steps_per_member=24_000, evaluations=2, evaluation_episodes=3),
    )


def _recorded(data: Path, step: int) -> tuple[object, ...]:
    data.mkdir()
    with ScriptedServer(runpy.run_path(str(SCRIPT))["SCRIPT"]) as provider:
        server = KilledServer(data, provider.url, step)
        server.start()
        with server.client() as client:
            client.create_session(_spec(), session_id="kill")
            if not step:
                client.wait_session("kill")
        if step:
            server.wait_for_death()
            assert (data / "killed").exists()
            server.start()
        with server.client() as client:
            session = client.wait_session("kill")
            iterations = list(client.list_iterations("kill"))
        server.stop()
        provider.assert_exhausted()
        count = len(provider.requests)
    weights = sorted(
        hashlib.sha256(path.read_bytes()).hexdigest() for path in data.glob("artifacts/**/policy/policy.safetensors")
    )
    scores = [entry.judgment.score for entry in iterations]
    facts = (session.state, session.best_judgment.score, session.confirmation.score, session.cost.requests)
    return (*facts, session.env_steps, scores, [entry.reward.source for entry in iterations], weights, count)


@pytest.mark.slow
@pytest.mark.timeout(14400)
def test_every_step(tmp_path: Path) -> None:
    calm = _recorded(tmp_path / "calm", 0)
    steps = killing.steps(tmp_path / "calm")
    assert calm[0] in (pb.SESSION_STATE_SUCCEEDED, pb.SESSION_STATE_EXHAUSTED) and len(steps) > 25
    chosen = os.environ.get("KILL_STEPS", "")  # so that a part can be run, as 3,9
    expected = {int(number) for number in chosen.split(",")} if chosen else set(range(1, len(steps) + 1))
    for number, name in enumerate(steps, start=1):
        if number in expected:
            assert _recorded(tmp_path / f"step-{number}", number) == calm, name
