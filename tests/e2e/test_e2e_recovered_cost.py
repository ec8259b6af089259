"""kill -9 within a conversation: the replies bought by then are not bought again, and their cost is counted all the same."""

from __future__ import annotations

import runpy
import time
from pathlib import Path

from dressage.api.v1 import session_pb2 as pb
from openai_server import Answer, ScriptedServer
from serving import Server

SCRIPT = Path(__file__).parents[1] / "fakes" / "scripts" / "repair_then_revise.py"


def test_replies_of_an_interrupted_conversation_are_counted(tmp_path: Path) -> None:
    *answers, revision = runpy.run_path(str(SCRIPT))["SCRIPT"]
    # The reviser's first reply asks for tools; the second never comes, and the server dies waiting for it.
    stalled = Answer(fault="stall", when="You are the reviser")
    with ScriptedServer([*answers, stalled, revision]) as provider:
        server = Server(tmp_path / "data", "--api-base", provider.url, environment={"OPENAI_API_KEY": "sk-test"})
        with server, server.client() as client:
            spec = pb.SessionSpec(
                intent="balance the pole",
                environment="environments/InvertedPendulum-v5",
                model="openai/gpt-4o-mini",  # one whose price is known
                max_iterations=2,
                reward=pb.RewardSpec(seeds=1, steps_per_member=24_000, evaluations=2, evaluation_episodes=3),
                video_judging=pb.VIDEO_JUDGING_NONE,
            )
            client.create_session(spec, session_id="broken")
            deadline = time.monotonic() + 180
            while sum("You are the reviser" in request.text() for request in provider.requests) < 2:
                assert time.monotonic() < deadline, server.log()[-3000:]
                time.sleep(0.1)
            server.kill()
        with server, server.client() as client:
            session = client.wait_session("broken")
            events = [answer.event for answer in client.watch_session("broken")]
        provider.assert_exhausted()
        answered = len(provider.requests) - 1
    assert session.state in (pb.SESSION_STATE_SUCCEEDED, pb.SESSION_STATE_EXHAUSTED), session
    assert session.cost.requests == answered
    assert session.cost.input_tokens == 100 * answered and session.cost.output_tokens == 50 * answered
    recovered = session.cost_by_role["recovered"]
    assert recovered.requests == 1 and recovered.dollars > 0
    assert abs(session.cost.dollars - answered * recovered.dollars) < 1e-9
    assert [event.warning.reason for event in events].count("COST_RECOVERED") == 1
