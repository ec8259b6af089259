"""The services of one machine on loopback, without tokens, for the tests of this folder."""

from __future__ import annotations

import asyncio
import importlib
import logging
import sys
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dressage_judge.wiring
import dressage_llm_agent.wiring
import dressage_orchestrator.wiring
import dressage_renderer.wiring
import pytest
import pytest_asyncio
from dressage.api.v1 import session_service_pb2, session_service_pb2_grpc
from dressage.artifacts import DirectoryStore
from dressage.envs.catalogue import catalogue
from dressage.serving.channels import connect
from dressage_judge.settings import Settings as JudgeSettings
from dressage_llm_agent.settings import Settings as AgentSettings
from dressage_orchestrator.launch.tokens import RunTokens, load_or_create_secret
from dressage_orchestrator.settings import Settings as OrchestratorSettings
from dressage_renderer.settings import Settings as RendererSettings

from tests.fakes.specs import reward_session

_EXISTING = "fuzzed"
_TRAJECTORY = catalogue()["CartPole-v1"].trajectories / "random_0.npz"


@dataclass(frozen=True)
class Services:
    """Addresses by package of the protos, and strings that exist.

    :param tokens: makes a valid token of a run.
    """

    addresses: dict[str, str]
    pool: tuple[str, ...]
    tokens: RunTokens

    def run_token(self) -> str:
        """The token of a first attempt of the existing session's run."""
        return self.tokens.make(f"sessions/{_EXISTING}/runs/r1", 1, expiry=int(time.time()) + 3600)


@pytest.fixture
def requests_per_method(request: pytest.FixtureRequest) -> int:
    """How many requests each method gets."""
    return int(request.config.getoption("--fuzz-requests"))


@pytest_asyncio.fixture
async def services(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Services]:
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GEMINI_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    _drop_closed_handlers()
    await asyncio.to_thread(importlib.import_module, "litellm")  # seconds, which are not those of a request
    store = str(tmp_path / "artifacts")
    async with AsyncExitStack() as stack:

        async def start(wiring: Any, settings: Any) -> str:
            service = await wiring.start(settings)
            stack.push_async_callback(service.stop)
            return str(service.address)

        common: dict[str, Any] = {"store_url": store, "grace_seconds": 0.5}
        agent = await start(dressage_llm_agent.wiring, AgentSettings(**common, tool_seconds=1.0, task_seconds=10.0))
        renderer = await start(dressage_renderer.wiring, RendererSettings(**common))
        leaves = {"llm_agent_address": agent, "renderer_address": renderer}
        judge = await start(dressage_judge.wiring, JudgeSettings(**common, **leaves, sandbox_seconds=2.0))
        # Trainers end at once: the fuzzing is of requests, not of trainings.
        options = {"trainer_command": (sys.executable, "-c", ""), "data_dir": tmp_path, "stop_seconds": 0.5}
        settings = OrchestratorSettings(**common, **leaves, **options, judge_address=judge)  # type: ignore[arg-type]
        public = await start(dressage_orchestrator.wiring, settings)
        pool = await _existing(public, DirectoryStore(Path(store)))
        addresses = {"AgentService": agent, "RendererService": renderer, "JudgeService": judge, "": public}
        yield Services(addresses, pool, RunTokens(load_or_create_secret(tmp_path)))


async def _existing(address: str, store: DirectoryStore) -> tuple[str, ...]:
    """Make a session with artifacts; return its names, and other strings that requests may need."""
    name = f"sessions/{_EXISTING}"
    async with connect(address) as channel:
        stub: Any = session_service_pb2_grpc.SessionServiceStub(channel)
        spec = reward_session(intent="run forward", environment="environments/CartPole-v1", steps_per_member=1000)
        await stub.CreateSession(session_service_pb2.CreateSessionRequest(session_id=_EXISTING, spec=spec))
        await stub.CancelSession(session_service_pb2.CancelSessionRequest(name=name))
        async with asyncio.timeout(60):
            while not (await stub.GetSession(session_service_pb2.GetSessionRequest(name=name))).HasField("end_time"):
                await asyncio.sleep(0.1)
    key = f"{name}/iterations/1/assignments/train/members/m/rollouts/1_median.npz"
    store.put(key, _TRAJECTORY.read_bytes())
    store.put(f"{name}/iterations/1/reward.py", b"def reward(context): ...")
    names = (
        name,
        f"{name}/iterations/1",
        f"{name}/iterations/-",
        f"{name}/runs/r1",
        f"{name}/iterations/1/assignments/train",
    )
    others = ("environments/CartPole-v1", "CartPole-v1", "environments/HalfCheetah-v5", "benchmarks/b-1", "template/v1")
    texts = ("run forward", "local", "reward", "x", "a-1", "speed", "", key, f"{name}/videos/1.mp4", f"{name}/frames")
    return (*names, *others, *texts, "def reward(context):\n    return context.action * 0\n")


def _drop_closed_handlers() -> None:
    for name in ("dbos", ""):
        logger = logging.getLogger(name)
        for handler in list(logger.handlers):
            if getattr(getattr(handler, "stream", None), "closed", False):
                logger.removeHandler(handler)
