"""What judged a score, which rollouts it leaves out, and which rollout its diagnosis quotes."""

from __future__ import annotations

import json

import pytest
from dressage.api.v1 import session_pb2 as v1
from dressage.errors import InvalidArgument
from dressage_orchestrator.lifecycle import aggregate, judging
from dressage_orchestrator.lifecycle.registry import Methods
from dressage_orchestrator.methods.reward.history import History
from dressage_orchestrator.methods.reward.judgment import by_config
from dressage_orchestrator.methods.reward.tools import history_tools
from hypothesis import given
from hypothesis import strategies as st

from tests.fakes.specs import filled_session, reward_session

THRESHOLD = 0.7
MEMBER = "sessions/s/iterations/1/assignments/train/members/default-s"


def by_code(score: float) -> v1.Judgment:
    text = f"Score {score:.2f} {'reaches' if score >= THRESHOLD else 'stays below'} the threshold."
    verdict = v1.Verdict(kind=v1.JUDGE_KIND_CODE, score=score)
    return v1.Judgment(score=score, diagnosis=text, verdicts=[verdict], judged_by="code", rollouts=1)


def with_video(score: float, video: float, comment: str = "it hops") -> v1.Judgment:
    judgment = by_code(score)
    judgment.verdicts.add(kind=v1.JUDGE_KIND_VIDEO, score=video, votes=3, comment=comment)
    judgment.judged_by, judgment.video_rollouts = "code and video", 1
    return judgment


def member(seed: int, judgments: dict[str, v1.Judgment | None], *, earlier: int = 0) -> v1.Member:
    rollouts = []
    for label, judgment in judgments.items():
        rollout = v1.Rollout(artifact=f"{MEMBER}{seed}/rollouts/9_{label}.npz", label=label)
        if judgment is not None:
            rollout.judgment.CopyFrom(judgment)
        rollouts.append(rollout)
    evaluations = [
        v1.Evaluation(env_step=step, rollouts=[v1.Rollout(artifact=f"{seed}/{step}/{at}", label=at) for at in LABELS])
        for step in range(1, earlier + 1)
    ]
    last = v1.Evaluation(env_step=100, rollouts=rollouts)
    return v1.Member(name=f"{MEMBER}{seed}", config="default", seed=seed, evaluations=[*evaluations, last])


LABELS = ("p10", "median", "p90")


def judged(members: list[v1.Member]) -> v1.Judgment:
    for entry in members:
        entry.judgment.CopyFrom(aggregate.member_judgment(entry, threshold=THRESHOLD))
    return by_config(members, threshold=THRESHOLD)["default"]


def test_a_judgment_names_its_judges_and_counts_what_is_left_out() -> None:
    rollouts = {"p10": by_code(0.6), "median": with_video(0.8, 0.9), "p90": None}
    whole = judged([member(1, rollouts), member(2, {"p10": by_code(0.7), "median": by_code(0.8), "p90": by_code(0.9)})])
    assert (whole.judged_by, whole.rollouts, whole.video_rollouts) == ("code and video", 5, 1)
    assert whole.unjudged_rollouts == 1 and not whole.without_video
    alone = judged(
        [member(1, {"median": v1.Judgment(score=1, rollouts=1, video_rollouts=1, verdicts=[v1.Verdict(kind=2)])})]
    )
    assert (alone.judged_by, alone.rollouts, alone.video_rollouts) == ("video", 1, 1)


def test_the_reasons_against_video_are_kept_through_all_means() -> None:
    first, second = by_code(0.5), by_code(0.6)
    first.without_video, second.without_video = "no key", "no key"
    assert judged([member(1, {"median": first}), member(2, {"median": second})]).without_video == "no key"
    with_one = judged([member(1, {"median": first}), member(2, {"median": with_video(0.5, 0.5)})])
    assert not with_one.without_video


def test_a_member_without_a_verdict_states_that_it_is_not_judged() -> None:
    empty = member(1, {"median": None})
    whole = aggregate.member_judgment(empty, threshold=THRESHOLD)
    assert (whole.rollouts, whole.unjudged_rollouts, whole.judged_by) == (0, 1, "")
    assert "no judged rollouts" in whole.diagnosis


@given(st.lists(st.lists(st.integers(0, 100).map(lambda n: n / 100), min_size=1, max_size=3), min_size=1, max_size=4))
def test_score_and_diagnosis_of_one_line_belong_to_one_rollout(seeds: list[list[float]]) -> None:
    members = [member(seed, dict(zip(LABELS, map(by_code, row), strict=False))) for seed, row in enumerate(seeds)]
    whole = judged(members)
    lowest = min(score for row in seeds for score in row)
    assert whole.lowest.score == pytest.approx(lowest) and f"Score {whole.lowest.score:.2f}" in whole.lowest.diagnosis
    count = sum(map(len, seeds))
    if count > 1:
        assert (
            whole.diagnosis == f"Mean of {count} rollouts; the lowest, {whole.lowest.rollout}: {whole.lowest.diagnosis}"
        )


def test_a_passing_mean_is_not_described_as_the_lowest_rollout() -> None:
    whole = judged([member(1, {"p10": by_code(0.26), "median": by_code(1.0), "p90": by_code(1.0)})])
    assert whole.passed and whole.diagnosis.startswith(
        "Mean of 3 rollouts; the lowest, default-s1 p10: Score 0.26 stays"
    )


def test_a_score_corrected_by_video_has_a_diagnosis_that_states_it() -> None:
    rollouts = {"p10": by_code(0.4), "median": with_video(0.6, 0.9)}
    rollouts["median"].score = 0.8
    whole = judged([member(1, rollouts)])
    assert whole.lowest.score == pytest.approx(0.6)
    assert "0.60 after the correction by video (+0.20). By code: Score 0.40" in whole.diagnosis


def test_what_video_saw_of_each_rollout_reaches_the_revisers_tool() -> None:
    members = [member(seed, {"median": with_video(0.5, 0.5, f"flips: unknown ({seed})")}) for seed in (1, 2)]
    whole = judged(members)
    iteration = v1.Iteration(name="sessions/s/iterations/1", number=1, judgment=whole)
    answer = json.loads(history_tools(History([iteration], {1: members}))["get_judgments"]({"number": 1}))
    video = next(entry for entry in answer["verdicts"] if entry["kind"] == "video")
    assert video["comment"] == "default-s1 median: flips: unknown (1)\ndefault-s2 median: flips: unknown (2)"
    assert answer["judged_by"] == "code and video" and all(
        "Score 0.50" in row["diagnosis"] for row in answer["members"]
    )


def test_remarks_are_cut_at_a_stated_length() -> None:
    whole = judged([member(seed, {"median": with_video(0.5, 0.5, "x" * 9000)}) for seed in (1, 2)])
    comment = whole.verdicts[1].comment
    assert len(comment) < aggregate.MAX_REMARKS + 80 and comment.endswith("characters left out)")


@pytest.mark.parametrize(("seeds", "earlier"), [(3, 3), (10, 4), (40, 1)])
def test_the_last_rollouts_of_every_member_are_kept(seeds: int, earlier: int) -> None:
    members = [member(seed, {label: by_code(0.5) for label in LABELS}, earlier=earlier) for seed in range(seeds)]
    iteration = v1.Iteration(name="sessions/s/iterations/1", number=1)
    answer = json.loads(history_tools(History([iteration], {1: members}))["get_rollouts"]({"number": 1}))
    rows = answer["rollouts"]
    last = {row["member"] for row in rows if row["env_step"] == 100 and row["label"] == "median"}
    assert len(last) == seeds and len(rows) <= 60
    assert len(rows) + answer["left_out"] == seeds * 3 * (earlier + 1)


def test_retired_lessons_are_not_in_force() -> None:
    lesson = v1.Iteration(name="sessions/s/iterations/1", number=1, lesson="pay for height", lesson_tier="STRONG")
    update = v1.Iteration(name="sessions/s/iterations/2", number=2, lesson="hold the torso", lesson_tier="SOFT")
    update.lesson_updates.add(number=1, tier="RETIRED", reason="it fell")
    answer = json.loads(history_tools(History([lesson, update]))["get_lessons"]({}))
    assert [entry["text"] for entry in answer] == ["hold the torso"]


def test_every_deciding_rollout_is_selected_before_the_limit() -> None:
    members = [member(seed, {"median": by_code(0.5)}) for seed in range(20)]
    assert len(judging.deciding_rollouts(members, v1.VIDEO_JUDGING_DECIDING)) == 20
    assert len(judging.deciding_rollouts(members, v1.VIDEO_JUDGING_ONLY)) == 20


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"video_options": v1.VideoOptions(fps=20, window_seconds=10)}, r"spec.video_options.window_seconds.*3.95 s"),
        (
            {"video_options": v1.VideoOptions(camera="trak"), "environment": "environments/Hopper-v5"},
            r"camera: Hopper-v5 has no such camera \(got 'trak'\); expected track, or empty.*Did you mean track\?",
        ),
        ({"video_options": v1.VideoOptions(camera="track")}, r"camera.*expected none, or empty"),
        ({"video_judging": v1.VIDEO_JUDGING_ONLY}, r"spec.video_judging.*vision model, because template/v1 sees no"),
        (
            {"video_judging": v1.VIDEO_JUDGING_ONLY, "model": "openai/gpt-4o", "judge_source": "def judge(): ..."},
            r"spec.video_judging.*deciding or all",
        ),
    ],
)
def test_video_settings_that_cannot_work_are_refused(changes: dict[str, object], message: str) -> None:
    full = reward_session(environment="environments/InvertedPendulum-v5")
    full.MergeFrom(v1.SessionSpec(**changes))
    full = filled_session(full)
    with pytest.raises(InvalidArgument, match=message):
        Methods.load().of(full).validate(full)
