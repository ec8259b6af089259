"""The fixed rubric that combines two verdicts, and the budget of a judgment's model calls."""

from __future__ import annotations

import pytest
from dressage.api.internal.v1 import agent_service_pb2 as agent_pb
from dressage.api.internal.v1 import judge_service_pb2 as pb
from dressage.api.v1 import session_pb2
from dressage.contracts.rubric import agree, status_mean, weighted_mean
from dressage.errors import ResourceExhausted
from dressage_judge import merging
from dressage_judge.budget import BudgetTracker
from dressage_judge.evidence import frames_prefix
from dressage_judge.video_judging import digest
from hypothesis import given
from hypothesis import strategies as st

score = st.floats(0, 1)


@given(code=score, video=score)
def test_the_weighted_score_is_between_the_two(code, video):
    low, high = sorted((code, video))
    assert low - 1e-12 <= weighted_mean(code, video) <= high + 1e-12


@pytest.mark.parametrize(
    ("code", "video", "agreed"), [(0.9, 0.7, True), (0.7, 0.9, True), (0.9, 0.69, False), (0.0, 1.0, False)]
)
def test_scores_agree_up_to_a_difference_of_0_2(code, video, agreed):
    assert agree(code, video) is agreed and merging.need_synthesis(code, video) is not agreed


def test_statuses_have_the_scores_of_the_rubric():
    assert status_mean(["met", "partly", "not_met"]) == 0.5 and status_mean([]) is None
    with pytest.raises(KeyError):
        status_mean(["perhaps"])


def judged(code: float) -> pb.RolloutJudgment:
    judgment = session_pb2.Judgment(
        score=code, passed=code >= 0.7, failure_tags=["slow"], diagnosis="Slow.", samples=[code]
    )
    judgment.criteria.add(name="speed", score=code)
    return pb.RolloutJudgment(rollout="r.npz", judgment=judgment)


def verdict(video: float) -> agent_pb.VideoVerdict:
    criterion = agent_pb.VisualCriterion(title="speed")
    seen = agent_pb.VisualScore(criterion=criterion, score=video, statuses=["met"] * 3)
    return agent_pb.VideoVerdict(score=video, votes=[video] * 3, criteria=[seen], dialect="grid", known=1.0)


@given(st.lists(st.sampled_from(["met", "partly", "not_met"])), st.integers(0, 5))
def test_what_was_not_shown_does_not_change_a_score(statuses, unknown):
    assert status_mean([*statuses, *["unknown"] * unknown]) == status_mean(statuses)


def test_a_criterion_that_was_not_shown_has_no_score_and_is_no_failure():
    shown = agent_pb.VisualScore(criterion=agent_pb.VisualCriterion(title="walks"), score=0.5, statuses=["partly"] * 3)
    hidden = agent_pb.VisualScore(criterion=agent_pb.VisualCriterion(title="flips"), statuses=["unknown"] * 3)
    message, some = judged(0.4), agent_pb.VideoVerdict(score=0.5, votes=[0.5] * 3, criteria=[shown, hidden], known=0.5)
    merging.merge(message, some, merging.by_rubric(0.4, 0.5), threshold=0.7)
    assert [entry.name for entry in message.judgment.criteria] == ["speed", "walks"]
    assert message.judgment.failure_tags == ["slow", "walks"]
    assert "flips: unknown, unknown, unknown" in message.judgment.verdicts[-1].comment
    nothing, message = agent_pb.VideoVerdict(criteria=[hidden], known=0.0), judged(0.4)
    merging.merge(message, nothing, merging.without_synthesis(0.4, None, "no time"), threshold=0.7)
    assert (
        message.judgment.score == 0.4 and not message.judgment.verdicts and message.notices == [merging.NOTHING_SHOWN]
    )


def test_a_second_look_settles_what_the_first_did_not_show():
    hidden = agent_pb.VisualScore(criterion=agent_pb.VisualCriterion(title="flips"), statuses=["unknown"] * 3)
    message, nothing = judged(0.9), agent_pb.VideoVerdict(criteria=[hidden], known=0.0)
    settled = [agent_pb.SettledCriterion(name="flips", source="video", status="met", evidence="frames 3 to 7")]
    synthesis = agent_pb.Synthesis(score=0.95, decided_by="video", criteria=settled, reasoning="Asked again.")
    merging.merge(message, nothing, merging.by_synthesis(0.9, None, synthesis, ["flips"]), threshold=0.7)
    assert message.judgment.score == 0.95 and message.judgment.verdicts[-1].score == 1.0 and not message.notices
    assert message.judgment.criteria[-1].name == "flips" and message.judgment.criteria[-1].score == 1.0


@given(code=score, video=score)
def test_an_unsettled_disagreement_has_the_lower_score(code, video):
    decision = merging.without_synthesis(code, video, "no time")
    assert decision.score == (weighted_mean(code, video) if agree(code, video) else min(code, video))


def test_a_merged_judgment_passes_according_to_its_own_score():
    message = judged(0.6)
    merging.merge(message, verdict(0.8), merging.by_rubric(0.6, 0.8), threshold=0.65)
    assert message.judgment.score == pytest.approx(0.68) and message.judgment.passed
    assert not message.judgment.failure_tags and [c.name for c in message.judgment.criteria] == [
        "speed",
        "video: speed",
    ]
    assert message.merge.agreed and message.judgment.samples == [pytest.approx(0.68)]
    failing = judged(0.1)
    merging.merge(failing, verdict(0.0), merging.by_rubric(0.1, 0.0), threshold=0.65)
    assert failing.judgment.failure_tags == ["slow", "speed"]


def test_the_budget_is_shared_by_all_rollouts():
    whole = BudgetTracker(session_pb2.Budget(tokens=100, dollars=1.0))
    first, second = whole.child(), whole.child()
    first.charge(session_pb2.Cost(requests=1, input_tokens=60, output_tokens=10, dollars=0.4))
    assert second.remaining().tokens == 30 and second.remaining().dollars == pytest.approx(0.6)
    assert second.spent.requests == 0 and first.spent.requests == whole.spent.requests == 1
    second.charge(session_pb2.Cost(requests=1, input_tokens=40))
    with pytest.raises(ResourceExhausted, match="no tokens are left"):
        first.remaining()
    assert not whole.spent.HasField("dollars") and first.spent.dollars == 0.4  # an unknown price is not zero


def test_frames_are_stored_next_to_the_rollouts():
    assert frames_prefix("s/members/m/rollouts/100_p10.npz", "a") == "s/members/m/frames/100_p10/a"
    assert frames_prefix("r/3.npz", "a") == "r/3-frames/a"


def test_a_digest_depends_on_every_part():
    texts = {digest("a", "bc"), digest("ab", "c"), digest("a")}
    assert len(texts | {digest(session_pb2.VideoOptions(fps=1)), digest(session_pb2.VideoOptions(fps=2))}) == 5
