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
WANTED = {"criteria": [{"title": title, "description": words} for title, words in CRITERIA]}


def fenced(data: object) -> str:
    return f"Here it is.\n```json\n{json.dumps(data)}\n```\n"


def ballot(*statuses: str) -> Answer:
    entries = [
        {"title": title.upper(), "seen": "frames 1 to 3", "status": status}
        for (title, _), status in zip(CRITERIA, statuses, strict=True)
    ]
    return Answer(fenced({"criteria": entries, "diagnosis": "it trembles"}), when="the video judge", input_tokens=900)


LISTS = Answer(fenced(WANTED), when="You list what a judge has to look for")
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


async def test_judges_that_differ_are_settled_by_evidence_and_nothing_is_bought_twice(tmp_path: Path) -> None:
    script = [
        LISTS,
        ballot("not_met", "partly", "not_met"),
        Answer("I would say it is fine.", when="the video judge"),  # repaired in the same vote
        ballot("not_met", "met", "not_met"),
        ballot("not_met", "partly", "partly"),
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
        async with stack(tmp_path, server) as restarted:  # as after a crash: nothing but the store is left
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
    vote = next(r for r in requests if "the video judge" in r.text())
    assert page(vote).size == (644, 644) and len(vote.pictures()) == 1
    assert "4 frames of a recorded episode" in vote.text("user")
    told = [m["content"] for r in requests[-1:] for m in r.body["messages"] if m["role"] == "tool"]
    assert "it stays on its square" in told[0] and "frames_at" in told[0]
    assert set(json.loads(told[1])) == {"way"}
    assert "after start" in told[2] and "at most 30" in told[3] and "check failed" in told[4] and "no tool" in told[5]
    everything = "".join(p.read_text(errors="ignore") for p in tmp_path.rglob("*.json"))
    assert KEY not in everything and "iVBORw0" not in everything  # neither the key nor pictures lie in the journal


async def test_judges_that_agree_are_averaged_and_only_what_is_asked_for_is_looked_at(tmp_path: Path) -> None:
    votes = [ballot("met", "met", "partly") for _ in range(3)]
    with ScriptedServer([LISTS, *votes], key=KEY) as server:
        async with stack(tmp_path, server) as running:
            asked = request(rollouts=[OTHER, ROLLOUT])
            said = [s async for s in running.stub.StreamJudge(pb.StreamJudgeRequest(request=asked), timeout=120)]
            whole = await running.judge(rollouts=[OTHER, ROLLOUT])
        server.assert_exhausted()
    verdicts = [s.rollout for s in said if s.WhichOneof("message") == "rollout"]
    assert [v.rollout for v in verdicts] == [OTHER, ROLLOUT] == [v.rollout for v in whole.rollouts]
    assert any("works as video_judge" in s.progress for s in said)
    assert len(verdicts[0].judgment.verdicts) == 1 and verdicts[0].judgment.score == 0.9
    assert verdicts[1].judgment.score == pytest.approx(0.6 * 0.9 + 0.4 * 2.5 / 3)
    assert verdicts[1].merge.agreed and verdicts[1].judgment.passed


@pytest.mark.parametrize(
    ("changes", "script", "notice"),
    [
        ({"model": "openai/gpt-4"}, [], "not known to see"),
        ({"model": "template/v1"}, [], "no language model"),
        ({"model": ""}, [], "no language model"),
        ({}, [Answer("this model takes no images", status=400)], "no images"),
        ({}, [LISTS, Answer("I cannot help with that.", repeat=True)], "no usable reply"),
        ({"remaining_budget": session_pb2.Budget(tokens=100)}, [LISTS], "budget"),
    ],
    ids=["blind", "template", "none", "refuses pictures", "talks", "poor"],
)
async def test_where_video_cannot_be_judged_the_code_does_and_it_is_said(
    tmp_path: Path, changes: dict[str, Any], script: list[Answer], notice: str
) -> None:
    with ScriptedServer(script, key=KEY) as server:
        async with stack(tmp_path, server) as running:
            (judged,) = (await running.judge(**changes)).rollouts
    assert judged.judgment.score == 0.9 and len(judged.judgment.verdicts) == 1
    assert notice in judged.notices[0] and "code alone" in judged.notices[0]


async def test_a_passing_fault_is_the_callers_to_repeat_and_what_was_bought_stays(tmp_path: Path) -> None:
    script = [LISTS, ballot("met", "met", "met"), Answer(status=429, when="the video judge")]
    rest = [ballot("met", "met", "met"), ballot("met", "met", "met")]
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


async def test_what_cannot_be_looked_at_is_refused_before_anything_is_spent(tmp_path: Path) -> None:
    with ScriptedServer([], key=KEY) as server:
        async with stack(tmp_path, server) as running:
            with pytest.raises(DressageError, match=r"video\.rollouts"):
                await running.judge(video=pb.VideoOptions(rollouts=["r/none.npz"]))
            with pytest.raises(DressageError, match=r"brief\.intent"):
                await running.judge(brief=agent_pb.Brief())
        assert not server.requests


async def test_every_rollout_that_a_judge_dies_on_is_named(tmp_path: Path) -> None:
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
