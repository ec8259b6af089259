"""A caller's reward on a pool of devices: the judge examines it, and the plan moves one that cannot be compiled."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from dressage.api.v1 import session_pb2 as v1
from dressage.serving import channels
from dressage_judge import settings as judge_settings
from dressage_judge import wiring as judge_wiring
from dressage_orchestrator.clients import JudgeClient
from dressage_orchestrator.device_pools import DevicePools, Placement
from dressage_orchestrator.launch.kubernetes.pools import parse_pools
from dressage_orchestrator.methods.reward.method import RewardMethod

EXAMPLES = Path(__file__).parents[3] / "examples" / "rewards"
GPU = {"image": "i", "resources": {"limits": {"nvidia.com/gpu": 1, "memory": "4Gi"}}}
POOLS = parse_pools({"pools": {"gpu": GPU, "cpu": {"image": "i"}, "big": {"image": "i"}}})


@pytest.fixture
async def judge(tmp_path: Path) -> AsyncIterator[JudgeClient]:
    settings = judge_settings.Settings(store_url=str(tmp_path / "artifacts"), grace_seconds=1, sandbox_seconds=60)
    service = await judge_wiring.start(settings)
    async with channels.connect(service.address) as channel:
        yield JudgeClient(channel, seconds=120)
    await service.stop()


def spec(source: str, pool: str = "gpu") -> v1.SessionSpec:
    reward = v1.RewardSpec(reward_source=source, backend="jax", algorithm="ppo")
    return v1.SessionSpec(intent="run", environment="environments/HalfCheetah-v5", pool=pool, reward=reward)


def test_pools_with_a_device_are_known_by_their_resources() -> None:
    assert DevicePools.of(POOLS, "cpu") == DevicePools(frozenset({"gpu"}), "cpu", automatic=True)
    assert DevicePools.of(POOLS, "gpu") == DevicePools(frozenset({"gpu"}), "big", automatic=True)


async def test_a_reward_that_cannot_be_compiled_moves_to_the_cpu_pool(judge: JudgeClient) -> None:
    devices, method = DevicePools.of(POOLS, "cpu"), RewardMethod()
    per_step = (EXAMPLES / "per_step_forward.py").read_text()
    moved = spec(per_step)
    note = (await devices.place(moved, method, judge)).note
    assert moved.pool == "cpu" and note.startswith("pool cpu instead of gpu: traceable (line ")
    here = spec(per_step, pool="big")
    assert await devices.place(here, method, judge) == Placement() and here.pool == "big"
    # A reward that compiles stays, and so does one that fails its check: the session reports that.
    for source in ((EXAMPLES / "run_forward.py").read_text(), "no Python"):
        stays = spec(source)
        assert await devices.place(stays, method, judge) == Placement() and stays.pool == "gpu"
    # A session that writes its own reward has none to examine yet.
    own = spec("")
    assert await devices.place(own, method, judge) == Placement() and own.pool == "gpu"
