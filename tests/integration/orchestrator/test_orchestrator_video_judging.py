"""Sessions judged by video: its options, what judged each score, what is left out, and video alone."""

from __future__ import annotations

from typing import Any

import pytest
from dressage.api.v1 import session_pb2 as v1
from dressage.api.v1 import session_service_pb2 as pb

from tests.fakes.specs import reward_session
from tests.integration.orchestrator.fakes import watch
from tests.integration.orchestrator.stack import Stack

pytestmark = pytest.mark.asyncio
REWARD = "# good # curve=0.6\n"


async def play(stack: Stack, **more: Any) -> tuple[v1.Session, pb.LineageNode]:
    base = {
        "intent": "run forward fast",
        "environment": "environments/HalfCheetah-v5",
        "model": "test/eyes",
        "seeds": 2,
    }
    spec = reward_session(**{**base, "max_iterations": 1, "steps_per_member": 1000, "reward_source": REWARD, **more})
    created = await stack.sessions.CreateSession(pb.CreateSessionRequest(spec=spec, session_id="seen"))
    await watch(stack.sessions, created.name)
    lineage = await stack.sessions.GetLineage(pb.GetLineageRequest(name=created.name))
    return await stack.sessions.GetSession(pb.GetSessionRequest(name=created.name)), lineage.nodes[0]


async def test_video_options_reach_the_judge_and_judgments_name_their_judges(stack: Stack) -> None:
    await stack.start()
    options = v1.VideoOptions(fps=20, window_seconds=2, votes=1, motion_trail=True, camera="track")
    session, node = await play(stack, video_options=options, judge_source="# a judge\n")
    requests = [request for request in stack.neighbours.judge.judged if request.video.rollouts]
    assert requests and all(request.video.options == options for request in requests)
    for judgment in (session.best_judgment, session.confirmation):
        assert judgment.judged_by == "code and video" and judgment.video_rollouts >= 2
        assert judgment.rollouts >= judgment.video_rollouts and not judgment.without_video
        remarks = next(v.comment for v in judgment.verdicts if v.kind == v1.JUDGE_KIND_VIDEO)
        assert "default-s0 median: runs: met, met, unknown" in remarks
    assert (node.judged_by, node.without_video) == ("code and video", "")


async def test_rollouts_that_video_leaves_out_are_counted(stack: Stack) -> None:
    stack.neighbours.judge.sees = 1
    await stack.start()
    session, _ = await play(stack, judge_source="# a judge\n")
    deciding = next(r for r in stack.neighbours.judge.judged if r.video.rollouts).video.rollouts
    assert session.best_judgment.video_left_out == len(deciding) - 1 > 0


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({"model": "template/v1"}, "template/v1 has no vision support"),
        ({"video_judging": v1.VIDEO_JUDGING_NONE}, "video_judging none"),
    ],
)
async def test_a_judgment_by_code_states_why_not_by_video(stack: Stack, more: dict[str, Any], reason: str) -> None:
    await stack.start()
    session, node = await play(stack, judge_source="# a judge\n", **more)
    assert session.best_judgment.judged_by == "code" and reason in session.best_judgment.without_video
    assert reason in session.confirmation.without_video and reason in node.without_video
    assert not any(request.video.rollouts for request in stack.neighbours.judge.judged)


async def test_video_alone_judges_without_a_code_judge(stack: Stack) -> None:
    await stack.start()
    session, node = await play(stack, video_judging=v1.VIDEO_JUDGING_ONLY)
    assert session.state == v1.SESSION_STATE_SUCCEEDED and session.best_policy and session.best_video
    assert session.best_judgment.judged_by == node.judged_by == session.confirmation.judged_by == "video"
    assert session.best_judgment.score == pytest.approx(0.9) and session.best_judgment.video_rollouts == 2
    assert session.best_judgment.unjudged_rollouts == session.best_judgment.rollouts * 2  # p10 and p90 of each seed
    assert not any(request.judge_source for request in stack.neighbours.judge.judged)
    assert not any(task.HasField("judge_author") for task in stack.neighbours.agent.tasks)


async def test_a_session_that_only_video_judges_and_cannot_fails_with_a_policy(stack: Stack) -> None:
    stack.neighbours.judge.sees = 0
    await stack.start()
    session, _ = await play(stack, video_judging=v1.VIDEO_JUDGING_ONLY)
    assert session.state == v1.SESSION_STATE_FAILED and session.failure.reason == "VIDEO_NOT_JUDGED"
    assert "decided no visual criterion" in session.failure.message and session.best_policy
