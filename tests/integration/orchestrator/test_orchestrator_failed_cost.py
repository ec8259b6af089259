"""What a session that fails has cost is counted: real llm-agent, a scripted provider."""

from __future__ import annotations

import pytest
from dressage.api.v1 import session_pb2 as v1
from dressage.api.v1 import session_service_pb2 as pb
from dressage.artifacts.directory import DirectoryStore
from dressage.artifacts.store import ArtifactInfo
from dressage.errors import DressageError, FailedPrecondition, Unavailable
from dressage.serving.costs import attach_cost, cost_of
from dressage.serving.errors import to_status
from dressage_llm_agent.settings import Settings as AgentSettings
from dressage_llm_agent.wiring import start as start_agent
from google.rpc import error_details_pb2
from pydantic import SecretStr

from tests.fakes.openai_server import Answer, ScriptedServer
from tests.integration.orchestrator.fakes import watch
from tests.integration.orchestrator.stack import Stack
from tests.integration.orchestrator.test_orchestrator_killed_steps import JUDGE, through, warm
from tests.integration.orchestrator.test_orchestrator_session import spec


def test_the_cost_is_sent_with_the_status() -> None:
    error = FailedPrecondition("no", reason="LLM_REPLY_UNUSABLE", metadata={"role": "reviser"})
    attach_cost(error, v1.Cost(requests=2, input_tokens=200, output_tokens=100, dollars=0.125))
    info = error_details_pb2.ErrorInfo()
    assert to_status(error).details[0].Unpack(info)
    there = FailedPrecondition("no", metadata=dict(info.metadata))
    assert cost_of(there) == v1.Cost(requests=2, input_tokens=200, output_tokens=100, dollars=0.125)
    attach_cost(there, v1.Cost(requests=3))  # of unknown price
    assert cost_of(there) == v1.Cost(requests=3)
    assert cost_of(DressageError("free")) == v1.Cost()
    assert cost_of(DressageError("odd", metadata={"cost_requests": "many"})) == v1.Cost()


@pytest.mark.asyncio
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("end", "reason"),
    [
        (Answer("I would rather not.", when="You are the reward author", repeat=True), "LLM_REPLY_UNUSABLE"),
        (Answer("no such model", status=400, when="You are the reward author"), "LLM_BAD_REQUEST"),
    ],
    ids=["unusable twice", "refused after the first reply"],
)
async def test_the_cost_of_a_failed_session_is_counted(stack: Stack, end: Answer, reason: str) -> None:
    await warm()
    script = [
        Answer("Let me think.", when="You are the reward author"),
        end,
        Answer(
            f"## Reasoning\nSpeed.\n\n## Null controls\nrandom, untrained, motionless\n\n{JUDGE}",
            when="You are the judge author",
        ),
    ]
    folder = stack.folder / "failed"
    folder.mkdir()
    (folder / "artifacts").symlink_to(stack.folder / "artifacts")
    with ScriptedServer(script) as provider:
        store = str(stack.folder / "artifacts")
        agent = await start_agent(AgentSettings(store_url=store, api_base=provider.url, api_key=SecretStr("sk-test")))
        try:
            session, _, _ = await through(folder, "failed", (stack.neighbours.address, agent.address), 0)
        finally:
            await agent.stop()
        answered = len(provider.requests) - (end.status != 200)
    assert session.state == v1.SESSION_STATE_FAILED and session.failure.reason == reason
    # The cost of the judge is counted as well, although the reward failed.
    assert session.cost.requests == answered == 3 - (end.status != 200)
    assert session.cost.input_tokens == 100 * answered and session.cost.output_tokens == 50 * answered
    assert session.cost_by_role["reward_author"].requests == answered - 1
    assert session.cost_by_role["judge_author"].requests == 1


@pytest.mark.asyncio
async def test_a_session_ends_although_its_journal_cannot_be_read(
    stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    await stack.start()
    read = DirectoryStore.list

    def away(self: DirectoryStore, prefix: str = "") -> list[ArtifactInfo]:
        if prefix.endswith("/llm/"):
            raise Unavailable("the store is away")
        return read(self, prefix)

    monkeypatch.setattr(DirectoryStore, "list", away)
    created = await stack.sessions.CreateSession(pb.CreateSessionRequest(spec=spec(), session_id="unread"))
    await watch(stack.sessions, created.name)
    session = await stack.sessions.GetSession(pb.GetSessionRequest(name=created.name))
    assert session.state == v1.SESSION_STATE_SUCCEEDED and session.cost.requests == 4
