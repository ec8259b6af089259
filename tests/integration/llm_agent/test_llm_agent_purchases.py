"""Requests whose caller disappears or is doubled, or whose reply cannot be journalled at once: none is repeated."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from dressage.artifacts.directory import DirectoryStore
from dressage.errors import Unavailable
from dressage.serving import channels
from dressage_llm_agent.settings import Settings
from dressage_llm_agent.wiring import start
from openai_server import Answer, ScriptedServer

from tests.integration.llm_agent.test_llm_agent_service import (
    GOOD_REWARD,
    KEY,
    AgentServiceStub,
    Client,
    journal,
    reward_task,
    service,
)

pytestmark = [pytest.mark.asyncio, pytest.mark.timeout(120)]


async def until_requested(server: ScriptedServer) -> None:
    async with asyncio.timeout(60):
        while not server.requests:
            await asyncio.sleep(0.01)


async def test_the_reply_to_a_caller_that_died_is_journalled(tmp_path):
    with ScriptedServer([Answer(GOOD_REWARD, delay=1.0)]) as server:
        async with service(tmp_path, server.url) as client:
            first = asyncio.create_task(client.converse(reward_task()))
            await until_requested(server)
            first.cancel()
            with pytest.raises(asyncio.CancelledError):
                await first
            again = await client.converse(reward_task())  # joins the request
            once_more = await client.converse(reward_task())
        assert not server.abandoned and len(server.requests) == 1
    assert again.result.reward.source and again.result.cost.requests == 1
    assert once_more.result.journal_hits == 1 and once_more.result.cost.requests == 0


async def test_a_stop_waits_for_the_reply_to_a_caller_that_died(tmp_path):
    with ScriptedServer([Answer(GOOD_REWARD, delay=1.0)]) as server:
        async with service(tmp_path, server.url) as client:
            first = asyncio.create_task(client.converse(reward_task()))
            await until_requested(server)
            first.cancel()
    assert journal(tmp_path) == ["sessions/abc/llm/iterations/1/reward_author/0-0.json"]


async def test_two_callers_with_one_task_share_a_request_and_its_cost(tmp_path):
    with ScriptedServer([Answer(GOOD_REWARD, delay=0.5)]) as server:
        async with service(tmp_path, server.url) as client:
            talks = await asyncio.gather(client.converse(reward_task()), client.converse(reward_task()))
        assert len(server.requests) == 1
    assert sorted(talk.result.cost.requests for talk in talks) == [0, 1]
    assert talks[0].result.reward == talks[1].result.reward


class FailingStore(DirectoryStore):
    """A folder to which the first writes fail."""

    def __init__(self, folder: Path, failures: int) -> None:
        super().__init__(folder)
        self.failures = failures

    def put(self, key: str, data: bytes, *, if_absent: bool = False, synced: bool = True) -> bool:
        self.failures -= 1
        if self.failures >= 0:
            raise Unavailable("no space left on device", reason="ARTIFACT_STORE_FAILED")
        return super().put(key, data, if_absent=if_absent, synced=synced)


async def test_a_reply_is_kept_while_the_journal_cannot_be_written(tmp_path):
    store = FailingStore(tmp_path, failures=3)
    with ScriptedServer([Answer(GOOD_REWARD)]) as server:
        running = await start(Settings(api_base=server.url, api_key=KEY), store=store)
        channel = channels.connect(running.address)
        try:
            talk = await Client(AgentServiceStub(channel)).converse(reward_task())
        finally:
            await channel.close()
            await running.stop()
        assert len(server.requests) == 1
    assert talk.result.cost.requests == 1 and store.failures < 0
