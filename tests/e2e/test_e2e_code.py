"""A round of code policies with a real judge and trainer: good, bad and hostile candidates of a scripted provider; kill -9."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from dressage.api.v1 import session_pb2 as pb
from openai_server import ScriptedServer
from search_authors import SearchAuthors
from serving import Server

GOOD = """class Policy:
    def reset(self):
        self.gains = (0.1, 0.25, 3.0, 1.0)

    def act(self, obs):
        return int(sum(gain * value for gain, value in zip(self.gains, obs)) > 0)
"""
POOR = GOOD.replace("(0.1, 0.25, 3.0, 1.0)", "(0.0, 0.0, 1.0, 0.0)")
# It plays well and hangs when the pole has moved for a while, which no check of single observations finds.
HANGS = GOOD.replace("        self.gains", "        self.steps = 0\n        self.gains").replace(
    "        return", "        self.steps += 1\n        while self.steps > 25:\n            pass\n        return"
)
IMPORTS = "import os\n\n\n" + GOOD.replace("        return", "        os.fork()\n        return")


@pytest.mark.timeout(900)
def test_hostile_candidates_cost_nobody_else_anything(tmp_path: Path) -> None:
    authors = SearchAuthors(policies=[POOR, HANGS, GOOD, IMPORTS])
    with ScriptedServer(authors.answers()) as provider:
        environment = {"OPENAI_API_KEY": "sk-test"}
        server = Server(tmp_path / "data", "--api-base", provider.url, environment=environment)
        with server, server.client() as client:
            spec = pb.SessionSpec(
                intent="balance the pole",
                environment="environments/CartPole-v1",
                model="openai/scripted",
                max_iterations=2,
                code=pb.CodeSpec(candidates=4, episodes=2, report_episodes=10, repairs=0, act_seconds=0.5),
            )
            client.create_session(spec, session_id="code")
            # kill -9 while the trainer plays: the next server continues with the results that were reported.
            _await_evaluation(client)
            server.kill()
        with server, server.client() as client:
            for _ in client.watch_session("code"):
                pass
            session = client.get_session("code")
            (first,) = client.list_iterations("code")
    assert session.state == pb.SESSION_STATE_SUCCEEDED, session
    assert session.report.mean == 500 and session.report.confirmations == 1 and len(session.report.returns) == 10
    results = {entry.source: entry for entry in first.code.candidates}
    assert len(results) == 4 and first.code.source == GOOD and first.score == 500
    assert 0 < results[POOR].mean_return < 200
    assert results[IMPORTS].failure.reason == "POLICY_REJECTED" and "os" in results[IMPORTS].failure.message
    assert results[HANGS].failure.reason and not results[HANGS].HasField("mean_return")
    assert authors.counts["policy_author"] == 4  # bought once
    assert (tmp_path / "data/artifacts" / session.best_policy).is_dir()


def _await_evaluation(client) -> None:
    deadline = time.monotonic() + 200
    while time.monotonic() < deadline:
        if any(entry.phase == pb.PHASE_EVALUATE for entry in client.list_iterations("code")):
            time.sleep(3)
            return
        time.sleep(0.2)
    raise AssertionError("no evaluation")
