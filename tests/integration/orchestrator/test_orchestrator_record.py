"""A session that a scripted provider wrote is recorded, and replayed offline with the same requests."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from dressage.api.v1 import session_pb2 as v1
from dressage.api.v1 import session_service_pb2 as pb
from dressage.client.aio import AsyncClient
from dressage.errors import FailedPrecondition, InvalidArgument
from dressage.sdk.recording import record, recorded_spec
from dressage.sdk.specs import replay_spec
from dressage_llm_agent.settings import Settings as AgentSettings
from dressage_llm_agent.wiring import start as start_agent
from pydantic import SecretStr

from tests.fakes.openai_server import ScriptedServer
from tests.integration.orchestrator.fakes import watch
from tests.integration.orchestrator.stack import Stack
from tests.integration.orchestrator.test_orchestrator_killed_steps import script, warm


def conversations(folder: Path) -> dict[str, tuple[object, str]]:
    """Messages and reply of each entry of a journal, without the session's name."""
    entries = {}
    for path in sorted(folder.glob("llm/**/*.json")):
        entry = json.loads(path.read_text().replace(folder.name, "SESSION"))
        if entry["kind"] == "reply":
            entries[str(path.relative_to(folder))] = (entry["messages"], entry["reply"])
    return entries


async def run(stack: Stack, name: str, spec: v1.SessionSpec) -> v1.Session:
    created = await stack.sessions.CreateSession(pb.CreateSessionRequest(spec=spec, session_id=name))
    await watch(stack.sessions, created.name)
    session: v1.Session = await stack.sessions.GetSession(pb.GetSessionRequest(name=created.name))
    return session


@pytest.mark.asyncio
@pytest.mark.timeout(300)
async def test_a_recorded_session_replays_to_the_same_requests(stack: Stack, tmp_path: Path) -> None:
    await warm()
    artifacts, folder = stack.folder / "artifacts", tmp_path / "recordings" / "again"
    spec = v1.SessionSpec(
        intent="run forward",
        environment="environments/HalfCheetah-v5",
        model="openai/scripted",
        max_iterations=3,
        video_judging=v1.VIDEO_JUDGING_NONE,  # a replay has none, so that later prompts would differ
        reward=v1.RewardSpec(seeds=1, steps_per_member=1000),
    )
    with ScriptedServer(script()) as provider:
        settings = AgentSettings(
            store_url=str(artifacts),
            api_base=provider.url,
            api_key=SecretStr("sk-test"),
            recordings=str(folder.parent),
        )
        agent = await start_agent(settings)
        stack.options = {"llm_agent_address": agent.address}
        await stack.start()
        original = await run(stack, "original", spec)
        provider.assert_exhausted()
    # The provider is gone. The folder is all that the replay has.
    client = AsyncClient.connect(stack.service.address, None)
    files = await record(client, "original", folder)
    with pytest.raises(InvalidArgument, match="not empty"):
        await record(client, "original", folder)
    await client.close()
    assert folder / "session.json" in files and len(files) == 1 + len(list(folder.glob("llm/**/*.json")))
    assert not list(folder.glob("llm/**/*-tool-*.json"))
    replay = replay_spec(folder, {})
    assert replay.model == "recorded/again" and replay.reward.tune_hyperparameters
    again = await run(stack, "replayed", replay)
    await agent.stop()

    assert original.state == again.state == v1.SESSION_STATE_SUCCEEDED, again.state_reason
    assert again.best_judgment.score == original.best_judgment.score
    assert original.cost.requests == 5 and again.cost.requests == 0
    before, after = (conversations(artifacts / "sessions" / name) for name in ("original", "replayed"))
    assert set(before) == set(after) and len(before) == 5
    for key, conversation in before.items():
        assert after[key] == conversation, key


@pytest.mark.asyncio
async def test_a_session_without_replies_has_nothing_to_record(stack: Stack, tmp_path: Path) -> None:
    await stack.start()
    spec = v1.SessionSpec(intent="run", environment="environments/HalfCheetah-v5", max_iterations=1)
    spec.reward.MergeFrom(v1.RewardSpec(seeds=1, steps_per_member=1000, reward_source="# good", train_only=True))
    await run(stack, "mine", spec)
    client = AsyncClient.connect(stack.service.address, None)
    with pytest.raises(FailedPrecondition, match="has no replies of a model"):
        await record(client, "mine", tmp_path / "new")
    with pytest.raises(InvalidArgument, match="becomes the recording's name"):
        await record(client, "mine", tmp_path / "Not a name")
    await client.close()


def test_a_recorded_spec_lacks_models_and_what_the_author_set() -> None:
    session = v1.Session(name="sessions/x", spec=v1.SessionSpec(intent="run", model="openai/m", thinking="high"))
    session.spec.roles["judge"].model = "openai/j"
    session.spec.budget.dollars = 1.0
    session.spec.environment_options.max_episode_steps = 200
    session.spec.environment_options.terminate_when_unhealthy = False
    session.options_of_author.terminate_when_unhealthy = False
    expected = v1.SessionSpec(intent="run", max_iterations=1)
    expected.environment_options.max_episode_steps = 200
    assert recorded_spec(session) == expected
