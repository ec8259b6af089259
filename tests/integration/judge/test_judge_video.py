"""Judging by code and video: real judge, llm-agent and renderer over real gRPC; only the provider is scripted."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import pytest
from dressage.api.internal.v1 import agent_service_pb2 as agent_pb
from dressage.api.internal.v1 import judge_service_pb2 as pb
from dressage.api.internal.v1 import judge_service_pb2_grpc as rpc
from dressage.api.v1 import session_pb2
from dressage.artifacts import ArtifactStore, open_store
from dressage.envs.trajectory import load_check_trajectories
from dressage.errors import DressageError
from dressage.rpc_errors import from_rpc
from dressage.serving import channels
from dressage_judge import settings as judge_settings
from dressage_judge import wiring as judge_wiring
from dressage_llm_agent import settings as agent_settings
from dressage_llm_agent import wiring as agent_wiring
from dressage_renderer import settings as renderer_settings
from dressage_renderer import wiring as renderer_wiring
from openai_server import Answer, Call, Request, ScriptedServer
from PIL import Image

pytestmark = [pytest.mark.asyncio, pytest.mark.timeout(180), pytest.mark.usefixtures("litellm_is_imported")]

ENV, MODEL, SESSION = "HalfCheetah-v5", "openai/scripted-vision", "sessions/abc"
ROLLOUT = f"{SESSION}/iterations/1/assignments/train/members/base-s1/rollouts/100_median.npz"
OTHER = f"{SESSION}/iterations/1/assignments/train/members/base-s1/rollouts/100_p10.npz"
KEY = "sk-scripted-secret-0123456789"

CONTENT = """
def judge(trajectory, np):
    speed = float(np.mean(trajectory.x_velocity))
    return {"score": 0.9, "criteria": {"runs": 0.9}, "evidence": {"mean_speed": speed}}
"""
CRITERIA = [("moves ahead", "squares pass by"), ("upright", "the back is up"), ("both legs", "both push")]
VISUAL_CRITERIA = {"criteria": [{"title": title, "description": words} for title, words in CRITERIA]}


def fenced(data: object) -> str:
    return f"Here it is.\n```json\n{json.dumps(data)}\n```\n"


def vote(*statuses: str) -> Answer:
    entries = [
        {"title": title.upper(), "seen": "frames 1 to 3", "status": status}
        for (title, _), status in zip(CRITERIA, statuses, strict=True)
    ]
    return Answer(fenced({"criteria": entries, "diagnosis": "it trembles"}), when="the video judge", input_tokens=900)


LISTS = Answer(fenced(VISUAL_CRITERIA), when="You list what a judge has to look for")
SETTLED = {
    "criteria": [
        {"name": "runs", "source": "code", "status": "not_met", "evidence": "way = -0.2 m"},
        {"name": "moves ahead", "source": "video", "status": "not_met", "evidence": "frames 1 to 4"},
        {"name": "upright", "source": "video", "status": "met", "evidence": "frames 1 to 4"},
        {"name": "both legs", "source": "video", "status": "partly", "evidence": "the answer"},
    ],
    "decided_by": "both",
    "reasoning": "The code never looks at the way made; the check and the video show none.",
}
CHECK = 'def check(trajectory, np):\n    return {"way": float(trajectory.x_position[-1] - trajectory.x_position[0])}\n'
ANSWERS = Answer(
    fenced({"answer": "it stays on its square", "certain": True}), when="You look at pictures of a simulated"
)


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
        "video": pb.VideoOptions(rollouts=[ROLLOUT], max_frames=4),
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


def page(request: Request) -> Image.Image:
    head, _, data = request.pictures()[0].partition(",")
    assert head == "data:image/png;base64"
    return Image.open(io.BytesIO(base64.b64decode(data)))


async def test_a_disagreement_is_settled_and_no_request_is_repeated(tmp_path: Path) -> None:
    script = [
        LISTS,
        vote("not_met", "partly", "not_met"),
        Answer("I would say it is fine.", when="the video judge"),  # repaired in the same vote
        vote("not_met", "met", "not_met"),
        vote("not_met", "partly", "partly"),
        Answer(
            calls=(
                Call("ask_video", {"question": "does it move?", "start": 0.0, "end": 0.5, "fps": 8}),
                Call("run_check", {"code": CHECK}),
            ),
            when="the synthesiser",
        ),
        ANSWERS,
        Answer(
            calls=(
                Call("ask_video", {"question": "?", "start": 2, "end": 1, "fps": 8}),
                Call("ask_video", {"question": "?", "start": 0, "end": 1, "fps": 1000}),
                Call("run_check", {"code": "import os"}),
                Call("launch_rockets", {}),
            ),
            when="the synthesiser",
        ),
        Answer(fenced(SETTLED), when="the synthesiser"),
    ]
    with ScriptedServer(script, key=KEY) as server:
        async with stack(tmp_path, server) as running:
            (judged,) = (await running.judge()).rollouts
            bought, journal = len(server.requests), running.journal()
            again = (await running.judge()).rollouts[0]
        async with stack(tmp_path, server) as restarted:  # as after a crash: only the store remains
            third = (await restarted.judge()).rollouts[0]
        server.assert_exhausted()
        assert len(server.requests) == bought == 9
        requests = list(server.requests)
    # 0.6 x code (0) + 0.4 x video ((0 + 1 + 0.5) / 3)
    assert judged.judgment.score == pytest.approx(0.2)
    assert not judged.judgment.passed and judged.judgment.samples == [judged.judgment.score]
    code, video = judged.judgment.verdicts
    assert (code.kind, code.score) == (session_pb2.JUDGE_KIND_CODE, 0.9)
    assert (video.kind, video.votes) == (session_pb2.JUDGE_KIND_VIDEO, 3)
    assert video.score == pytest.approx((1 / 6 + 1 / 3 + 1 / 3) / 3) and video.spread > 0
    assert (judged.merge.agreed, judged.merge.decided_by) == (False, "both")
    assert "never looks at the way made" in judged.judgment.diagnosis and "it trembles" in judged.judgment.diagnosis
    assert "moves_ahead" in judged.judgment.failure_tags and not judged.notices
    assert judged.judgment.cost.requests == 9 and not judged.judgment.cost.HasField("dollars")
    # Three votes stay three replies, under keys of their own; the tools' results are kept, too.
    votes = [key.rpartition("/")[2] for key in journal if "/video/" in key]
    assert {"0-0.json", "0-1.json", "0-2.json"} < set(votes) and len(votes) == 4
    assert sum("-tool-" in key for key in journal) == 6 and sum("/ask/" in key for key in journal) == 1
    for repeat in (again, third):
        assert repeat.judgment.cost.requests == 0 and repeat.judgment.cost.dollars == 0
        assert repeat.judgment.diagnosis == judged.judgment.diagnosis
    voted = next(r for r in requests if "the video judge" in r.text())
    assert page(voted).size == (644, 644) and len(voted.pictures()) == 1
    assert "4 frames of a recorded episode" in voted.text("user")
    outputs = [m["content"] for r in requests[-1:] for m in r.body["messages"] if m["role"] == "tool"]
    assert "it stays on its square" in outputs[0] and "frames_at" in outputs[0]
    assert set(json.loads(outputs[1])) == {"way"}
    assert (
        "after start" in outputs[2]
        and "at most 30" in outputs[3]
        and "check failed" in outputs[4]
        and "no tool" in outputs[5]
    )
    everything = "".join(p.read_text(errors="ignore") for p in tmp_path.rglob("*.json"))
    assert KEY not in everything and "iVBORw0" not in everything  # the journal contains neither the key nor images


async def test_judges_that_agree_are_averaged_on_the_requested_rollouts(tmp_path: Path) -> None:
    votes = [vote("met", "met", "partly") for _ in range(3)]
    with ScriptedServer([LISTS, *votes], key=KEY) as server:
        async with stack(tmp_path, server) as running:
            first, second = (await running.judge(rollouts=[OTHER, ROLLOUT])).rollouts
            again = (await running.judge(rollouts=[ROLLOUT, OTHER])).rollouts
        server.assert_exhausted()
    assert [first.rollout, second.rollout] == [OTHER, ROLLOUT] and [j.rollout for j in again] == [ROLLOUT, OTHER]
    assert len(first.judgment.verdicts) == 1 and first.judgment.score == 0.9 and not first.judgment.HasField("cost")
    assert second.judgment.score == pytest.approx(0.6 * 0.9 + 0.4 * 2.5 / 3)
    assert second.merge.agreed and second.judgment.passed and second.judgment.cost.requests == 4


@pytest.mark.parametrize(
    ("changes", "script", "notice"),
    [
        ({"model": "openai/gpt-4"}, [], "does not support vision"),
        ({"model": "template/v1"}, [], "no language model"),
        ({"model": ""}, [], "no language model"),
        ({}, [Answer("this model takes no images", status=400)], "no images"),
        ({}, [LISTS, Answer("I cannot help with that.", repeat=True)], "no usable reply"),
        ({"remaining_budget": session_pb2.Budget(tokens=100)}, [LISTS], "budget"),
    ],
    ids=["no vision", "template", "none", "refuses images", "unusable replies", "budget"],
)
async def test_without_video_judging_the_code_judges_and_a_notice_is_added(
    tmp_path: Path, changes: dict[str, Any], script: list[Answer], notice: str
) -> None:
    with ScriptedServer(script, key=KEY) as server:
        async with stack(tmp_path, server) as running:
            (judged,) = (await running.judge(**changes)).rollouts
    assert judged.judgment.score == 0.9 and len(judged.judgment.verdicts) == 1
    assert notice in judged.notices[0] and "code alone" in judged.notices[0]


async def test_a_transient_fault_is_retried_with_the_journalled_replies(tmp_path: Path) -> None:
    script = [LISTS, vote("met", "met", "met"), Answer(status=429, when="the video judge")]
    rest = [vote("met", "met", "met"), vote("met", "met", "met")]
    budget = session_pb2.Budget(tokens=100_000)  # one vote after the other
    with ScriptedServer([*script, *rest], key=KEY) as server:
        async with stack(tmp_path, server, attempts=1) as running:
            with pytest.raises(DressageError) as caught:
                await running.judge(remaining_budget=budget)
            (judged,) = (await running.judge(remaining_budget=budget)).rollouts
        server.assert_exhausted()
        assert len(server.requests) == 5
    assert caught.value.reason == "LLM_RATE_LIMITED"
    assert judged.judgment.score == pytest.approx(0.6 * 0.9 + 0.4) and judged.judgment.cost.requests == 2


async def test_an_invalid_video_request_is_refused_before_any_cost(tmp_path: Path) -> None:
    with ScriptedServer([], key=KEY) as server:
        async with stack(tmp_path, server) as running:
            with pytest.raises(DressageError, match=r"video\.rollouts"):
                await running.judge(video=pb.VideoOptions(rollouts=["r/none.npz"]))
            with pytest.raises(DressageError, match=r"brief\.intent"):
                await running.judge(brief=agent_pb.Brief())
        assert not server.requests


async def test_every_rollout_that_exceeds_a_limit_is_reported(tmp_path: Path) -> None:
    dies = """
def judge(trajectory, np):
    if float(trajectory.x_position[0]) != 0.0:
        return {"score": 0.5, "criteria": {"lives": 0.5}, "evidence": {}}
    return {"score": float(np.ones(1000000000000)[0]), "criteria": {"dies": 0.0}, "evidence": {}}
"""
    with ScriptedServer([], key=KEY) as server:
        async with stack(tmp_path, server) as running:
            with pytest.raises(DressageError) as caught:
                await running.judge(rollouts=[ROLLOUT, OTHER], judge_source=dies.replace("!= 0.0", "> 1e9"), model="")
    assert caught.value.reason == "JUDGE_FAILED" and caught.value.metadata["rule"] == "memory_budget"
    assert caught.value.metadata["rollouts"] == f"{ROLLOUT},{OTHER}"
    assert ROLLOUT in caught.value.message and OTHER in caught.value.message
