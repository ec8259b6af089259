"""The judge with a real llm-agent and renderer, over real gRPC; the tests script the provider."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
from dressage.api.internal.v1 import agent_service_pb2 as agent_pb
from dressage.api.internal.v1 import judge_service_pb2 as pb
from dressage.api.internal.v1 import judge_service_pb2_grpc as rpc
from dressage.api.v1 import session_pb2
from dressage.artifacts import ArtifactStore, open_store
from dressage.envs.trajectory import load_check_trajectories
from dressage.rpc_errors import from_rpc
from dressage.serving import channels
from dressage_judge import settings as judge_settings
from dressage_judge import wiring as judge_wiring
from dressage_llm_agent import settings as agent_settings
from dressage_llm_agent import wiring as agent_wiring
from dressage_renderer import settings as renderer_settings
from dressage_renderer import wiring as renderer_wiring
from openai_server import ScriptedServer

ENV, MODEL, SESSION = "HalfCheetah-v5", "openai/scripted-vision", "sessions/abc"
ROLLOUT = f"{SESSION}/iterations/1/assignments/train/members/base-s1/rollouts/100_median.npz"
OTHER = f"{SESSION}/iterations/1/assignments/train/members/base-s1/rollouts/100_p10.npz"
KEY = "sk-scripted-secret-0123456789"

CONTENT = """
def judge(trajectory, np):
    speed = float(np.mean(trajectory.x_velocity))
    return {"score": 0.9, "criteria": {"runs": 0.9}, "evidence": {"mean_speed": speed}}
"""


def fenced(data: object) -> str:
    return f"Here it is.\n```json\n{json.dumps(data)}\n```\n"


@dataclass
class Stack:
    stub: rpc.JudgeServiceStub
    store: ArtifactStore

    async def judge(self, **changes: Any) -> pb.JudgeResponse:
        try:
            return await self.stub.Judge(request(**changes), timeout=120)
        except grpc.aio.AioRpcError as error:
            raise from_rpc(error) from None

    def journal(self) -> list[str]:
        return [info.key.removeprefix(f"{SESSION}/llm/") for info in self.store.list(f"{SESSION}/llm/")]


def request(**changes: Any) -> pb.JudgeRequest:
    values: dict[str, Any] = {
        "environment": ENV,
        "rollouts": [ROLLOUT],
        "judge_source": CONTENT,
        "pass_threshold": 0.7,
        "session": SESSION,
        "key": "iterations/1/judge/train",
        "model": MODEL,
        "brief": agent_pb.Brief(intent="run forward", environment=ENV),
        "video": pb.VideoSelection(rollouts=[ROLLOUT], options=session_pb2.VideoOptions(window_seconds=0.4)),
    }
    return pb.JudgeRequest(**(values | changes))


@asynccontextmanager
async def stack(folder: Path, server: ScriptedServer, **agent: Any) -> AsyncIterator[Stack]:
    common = {"store_url": str(folder / "artifacts"), "grace_seconds": 1}
    provider = {"api_base": server.url, "api_key": KEY, "request_seconds": 30.0, "first_wait_seconds": 0.01}
    services = [await renderer_wiring.start(renderer_settings.Settings(**common, workers=1))]
    services.append(await agent_wiring.start(agent_settings.Settings(**(common | provider | agent))))
    addresses = {"renderer_address": services[0].address, "llm_agent_address": services[1].address}
    scratch = str(folder / "scratch")
    services.append(await judge_wiring.start(judge_settings.Settings(**common, **addresses, scratch=scratch)))
    store = open_store(common["store_url"])
    for place, key in enumerate((ROLLOUT, OTHER)):
        if not store.exists(key):
            path = folder / "rollout.npz"
            load_check_trajectories(ENV)["random"][place].save(path)
            store.put_file(key, path)
    async with channels.connect(services[2].address) as channel:
        yield Stack(rpc.JudgeServiceStub(channel), store)
    for service in reversed(services):
        await service.stop()
