"""Judging by code and video: real judge, llm-agent and renderer over real gRPC; only the provider is scripted."""

from __future__ import annotations

import base64
import io
import json
from pathlib import Path
from typing import Any

import pytest
from dressage.api.internal.v1 import agent_service_pb2 as agent_pb
from dressage.api.internal.v1 import judge_service_pb2 as pb
from dressage.api.v1 import session_pb2
from dressage.errors import DressageError
from judge_stack import KEY, OTHER, ROLLOUT, fenced, stack
from openai_server import Answer, Call, Request, ScriptedServer
from PIL import Image

pytestmark = [pytest.mark.asyncio, pytest.mark.timeout(180), pytest.mark.usefixtures("litellm_is_imported")]

CRITERIA = [("moves ahead", "squares pass by"), ("upright", "the back is up"), ("both legs", "both push")]
VISUAL_CRITERIA = {"criteria": [{"title": title, "description": words} for title, words in CRITERIA]}


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
    assert page(voted).size == (1292, 1292) and len(voted.pictures()) == 2  # the overview, and the window of 0.4 s
    assert "frames 1 to 16, from second 0.00" in voted.text("user") and "frames 17 to 21" in voted.text("user")
    outputs = [m["content"] for r in requests[-1:] for m in r.body["messages"] if m["role"] == "tool"]
    assert "it stays on its square" in outputs[0] and "frames_at" in outputs[0]
    assert set(json.loads(outputs[1])) == {"way"}
    assert (
        "after start" in outputs[2]
        and "at most 24" in outputs[3]
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
    assert notice in judged.notices[0]


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
                await running.judge(video=pb.VideoSelection(rollouts=["r/none.npz"]))
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
