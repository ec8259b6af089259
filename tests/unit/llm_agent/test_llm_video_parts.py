"""How frames reach a model: rates of clips, limits of providers, and what a reviser reads of the video judge."""

from __future__ import annotations

from pathlib import Path

import pytest
from dressage.api.internal.v1 import agent_service_pb2 as agent_pb
from dressage.api.v1 import session_pb2 as v1
from dressage.artifacts.directory import DirectoryStore
from dressage.envs.cards import load_card
from dressage.errors import FailedPrecondition
from dressage_llm_agent import attachments
from dressage_llm_agent.provider.base import Attachment, Message
from dressage_llm_agent.provider.litellm_provider import load_litellm
from dressage_llm_agent.provider.vision import Vision, to_part, vision_support
from dressage_llm_agent.roles.base import ReplyProblem, Vote
from dressage_llm_agent.roles.reviser import Reviser
from dressage_llm_agent.roles.video_criteria import VideoCriteria
from dressage_llm_agent.roles.video_judge import combine

ENV = "HalfCheetah-v5"


@pytest.mark.parametrize(("rate", "sent"), [(10.0, 10.0), (0.3, 0.3), (30.0, 24.0)])
def test_gemini_is_sent_the_rate_at_which_to_sample_a_clip(rate: float, sent: float) -> None:
    load_litellm()
    from litellm.llms.vertex_ai.gemini.transformation import _gemini_convert_messages_with_history

    clip = Attachment("video", "clip.mp4", "video/mp4", fps=rate, data=b"mp4")
    content = [{"type": "text", "text": "look"}, to_part(clip)]
    (turn,) = _gemini_convert_messages_with_history([{"role": "user", "content": content}], model="gemini-2.5-pro")
    assert [part["video_metadata"] for part in turn["parts"] if "inline_data" in part] == [{"fps": sent}]


@pytest.mark.parametrize("model", ["gemini/gemini-2.5-pro", "gemini/gemini-2.5-flash", "gemini/gemini-3-pro-preview"])
def test_every_gemini_model_that_takes_images_takes_clips(model: str) -> None:
    assert vision_support(load_litellm(), model, Vision()) == (True, True)
    assert vision_support(load_litellm(), "openai/gpt-4o", Vision()) == (True, False)


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ([10] * (attachments.MAX_IMAGES + 1), "101 images, more than 100"),
        ([attachments.MAX_IMAGE_BYTES + 1], "exceeds 3700000 bytes"),
        ([attachments.MAX_IMAGE_BYTES] * 4, "exceed 14680064 bytes"),
    ],
)
async def test_more_than_the_providers_accept_is_refused(tmp_path: Path, sizes: list[int], message: str) -> None:
    store, keys = DirectoryStore(tmp_path), []
    for place, size in enumerate(sizes):
        keys.append(f"frames/{place}.png")
        store.put(keys[-1], b"x" * size)
    asking = Message("user", "look", attachments=tuple(Attachment("image", key, "image/png") for key in keys))
    with pytest.raises(FailedPrecondition, match=message) as caught:
        await attachments.AttachmentLoader(store).load((asking,))
    assert caught.value.reason == "ATTACHMENTS_TOO_LARGE"


def test_votes_on_what_was_not_shown_leave_the_score_to_the_others() -> None:
    criteria = [agent_pb.VisualCriterion(title=title) for title in ("flips", "runs")]
    task = agent_pb.VideoJudgeTask(criteria=criteria)
    votes = [
        Vote(("unknown", "met"), ("", "")),
        Vote(("unknown", "partly"), ("", "")),
        Vote(("unknown",) * 2, ("", "")),
    ]
    verdict = combine(task, votes, "grid")
    assert verdict.score == pytest.approx(0.75) and list(verdict.votes) == [1.0, 0.5]
    assert not verdict.criteria[0].HasField("score") and verdict.criteria[1].score == pytest.approx(0.75)
    assert verdict.known == pytest.approx(2 / 6)
    nothing = combine(task, [Vote(("unknown",) * 2, ("", ""))], "grid")
    assert nothing.known == 0 and not nothing.votes


def test_a_criterion_names_the_moment_that_shows_it() -> None:
    entries = ", ".join(f'{{"title": "c{n}", "description": "d", "moment": "turning"}}' for n in range(3))
    result = VideoCriteria().parse(f'{{"criteria": [{entries}]}}', agent_pb.VideoCriteriaTask())
    assert {criterion.moment for criterion in result.criteria} == {"turning"}
    with pytest.raises(ReplyProblem, match="moment 'sideways'"):
        VideoCriteria().parse(
            f'{{"criteria": [{entries.replace("turning", "sideways", 1)}]}}', agent_pb.VideoCriteriaTask()
        )


def test_the_reviser_reads_what_video_saw_of_every_rollout() -> None:
    remarks = "\n".join(
        f"default-s{seed} median: flips: not_met (frames 17 to 20: it slips, seed {seed})" for seed in (1, 2)
    )
    past = v1.Iteration(number=1, reward=v1.RewardProposal(source="..."), judgment=v1.Judgment(score=0.4))
    past.judgment.judged_by = "code and video"
    past.judgment.verdicts.add(kind=v1.JUDGE_KIND_VIDEO, score=0.2, comment=remarks)
    brief = agent_pb.Brief(intent="flip", environment=ENV)
    messages = Reviser().messages(agent_pb.ReviserTask(brief=brief, history=[past]), load_card(ENV))
    assert remarks in messages[-1].content and "judged 0.400 of 1 by code and video" in messages[-1].content
