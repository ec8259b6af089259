"""The language-model path, whole: a scripted provider's first reward fails its check, is repaired, trains, is judged too low,
is revised and passes."""

from __future__ import annotations

import runpy
from pathlib import Path

from dressage.api.v1 import session_pb2 as pb
from openai_server import ScriptedServer
from serving import Server

SCRIPT = Path(__file__).parents[1] / "fakes" / "scripts" / "repair_then_revise.py"
KEY = "sk-not-to-be-seen-anywhere-0123456789"


def test_repair_train_judge_revise_pass(tmp_path: Path):
    data = tmp_path / "data"
    script = runpy.run_path(str(SCRIPT))["SCRIPT"]
    answers = script() if callable(script) else script
    with ScriptedServer(answers) as provider:
        keys = {"OPENAI_API_KEY": KEY}
        with Server(data, "--api-base", provider.url, environment=keys) as server, server.client() as client:
            spec = pb.SessionSpec(
                intent="balance the pole",
                environment="environments/InvertedPendulum-v5",
                model="openai/scripted",
                max_iterations=3,
                reward=pb.RewardSpec(seeds=2, steps_per_member=24_000, evaluations=2, evaluation_episodes=5),
            )
            client.create_session(spec, session_id="scripted")
            events = [answer.event for answer in client.watch_session("scripted")]
            session = client.get_session("scripted")
            iterations = list(client.list_iterations("scripted"))
        provider.assert_exhausted()
    assert session.state == pb.SESSION_STATE_SUCCEEDED, session
    assert [event.sequence for event in events] == list(range(1, len(events) + 1))
    checks = [
        event.check_finished.ok
        for event in events
        if event.WhichOneof("payload") == "check_finished" and event.check_finished.subject == "reward"
    ]
    assert checks == [False, True, True]
    first, second = iterations
    assert first.repairs == 1 and not first.judgment.passed
    assert second.judgment.passed and second.parent == first.name
    assert second.diff and second.diagnosis
    assert session.confirmation.passed
    assert session.cost.requests == len(provider.requests)
    for path in data.rglob("*"):  # the key is in no artifact, log, event or database
        if path.is_file():
            assert KEY.encode() not in path.read_bytes(), path
