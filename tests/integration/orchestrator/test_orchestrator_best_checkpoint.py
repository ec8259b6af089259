"""An earlier checkpoint replaces the last one where it scored higher, and again on fresh seeds; the result names both."""

from __future__ import annotations

from typing import Any

import pytest
from dressage.api.v1 import event_pb2 as ev
from dressage.api.v1 import session_pb2 as v1
from dressage.api.v1 import session_service_pb2 as pb
from dressage.sdk.texts import origin_text
from dressage_orchestrator.methods.reward.checkpoint_choice import better_checkpoints, compare

from tests.fakes import killing
from tests.fakes.specs import reward_session
from tests.integration.orchestrator.fakes import JUDGE, watch
from tests.integration.orchestrator.killed_sessions import ended_session
from tests.integration.orchestrator.stack import Stack
from tests.integration.orchestrator.test_orchestrator_killed_steps import place

FELL = "# good # curve=0.95 # score=0.43 # fresh=0.85"
"""A reward of which the checkpoint at half of the steps scores 0.95, and the last one 0.43."""


async def play(stack: Stack, source: str, **more: Any) -> tuple[v1.Session, list[v1.Assignment], list[ev.Warning]]:
    base = {"intent": "run forward fast", "environment": "environments/HalfCheetah-v5", "seeds": 2, "max_iterations": 1}
    judge = {} if "train_only" in more else {"judge_source": JUDGE, "early_stop": False}
    spec = reward_session(**{**base, "steps_per_member": 1000, "reward_source": source, **judge, **more})
    created = await stack.sessions.CreateSession(pb.CreateSessionRequest(spec=spec))
    events = await watch(stack.sessions, created.name)
    session = await stack.sessions.GetSession(pb.GetSessionRequest(name=created.name))
    listing = pb.ListAssignmentsRequest(parent=f"{created.name}/iterations/1")
    listed = list((await stack.sessions.ListAssignments(listing)).assignments)
    return session, listed, [event.warning for event in events if event.HasField("warning")]


@pytest.mark.asyncio
async def test_a_better_earlier_checkpoint_is_delivered(stack: Stack) -> None:
    await stack.start()
    session, listed, warnings = await play(stack, f"{FELL} # again=0.92 # last=0.45\n")
    assert session.state == v1.SESSION_STATE_SUCCEEDED
    assert session.best_judgment.score == pytest.approx(0.92) and session.confirmation.score == pytest.approx(0.85)
    training, selection, last, confirmation = listed
    assert [entry.name.rpartition("/")[2] for entry in listed] == ["train", "select", "select-last", "confirm"]
    for member in training.members:
        assert member.delivered_env_step == 500 and member.policy.startswith(selection.name)
        # Later checkpoints stay, for the curve.
        assert [(e.env_step, len(e.returns)) for e in member.evaluations] == [(500, 10), (1000, 10)]
        compared = member.comparison
        assert (compared.env_step, compared.last_env_step, compared.episodes) == (500, 1000, 10) and compared.selected
        assert (compared.value, compared.last_value) == (pytest.approx(0.92), pytest.approx(0.45))
        assert compared.interval_low == pytest.approx(0.47)
    seeds = [[r.seed for m in entry.members for e in m.evaluations for r in e.rollouts] for entry in (selection, last)]
    assert seeds[0] == seeds[1] and sorted(set(seeds[0])) == list(range(1_500_000, 1_500_010))
    assert session.best_policy.startswith(f"{selection.name}/members/") and "/500_median" in session.best_video
    assert {m.evaluations[0].env_step for m in confirmation.members} == {500}
    assert session.env_steps == 2 * 1000  # playing a checkpoint trains nothing
    assert "at 500 steps, score 0.92 (the last checkpoint, at 1,000 steps, scored 0.45" in origin_text(session)
    assert [entry.reason for entry in warnings].count("CHECKPOINTS_COMPARED") == 2


async def killed(stack: Stack, step: int) -> tuple[Any, ...]:
    """Play a session whose server dies after the work of its n-th step, before that is recorded; 0: without a kill."""
    base = {"intent": "run forward fast", "environment": "environments/HalfCheetah-v5", "seeds": 1, "max_iterations": 1}
    source = f"{FELL} # again=0.92\n"
    spec = reward_session(**base, steps_per_member=1000, reward_source=source, judge_source=JUDGE, early_stop=False)
    async with ended_session(stack, spec, step) as (stub, name, events):
        session = await stub.GetSession(pb.GetSessionRequest(name=name))
        listed = await stub.ListAssignments(pb.ListAssignmentsRequest(parent=f"{name}/iterations/1"))
    compared = [event.warning.message for event in events if event.warning.reason == "CHECKPOINTS_COMPARED"]
    origin = session.policy_origin
    names = [entry.name.rpartition("/")[2] for entry in listed.assignments]
    return session.state, compared, origin.env_step, origin.score, origin.comparison, names


@pytest.mark.asyncio
@pytest.mark.timeout(900)
async def test_a_kill_between_choice_and_record_leads_to_the_same_choice(stack: Stack) -> None:
    calm = await killed(stack, 0)
    assert calm[0] == v1.SESSION_STATE_SUCCEEDED and calm[2] == 500 and len(calm[1]) == 1
    steps = killing.steps(stack.folder / "killed-0")
    for name in ("checkpoints:1:train", "select:1:train"):
        assert await killed(stack, place(steps, name)) == calm, name


@pytest.mark.asyncio
async def test_the_last_checkpoint_stays_where_no_earlier_one_is_better(stack: Stack) -> None:
    await stack.start()
    # It was the luckiest of a few episodes: on fresh seeds it scores as the last one.
    session, listed, _ = await play(stack, f"{FELL} # again=0.45 # last=0.45\n")
    assert session.best_judgment.score == pytest.approx(0.43) and len(listed) == 3
    assert {(m.delivered_env_step, m.comparison.selected) for m in listed[0].members} == {(0, False)}
    assert session.best_policy.startswith(f"{listed[0].name}/members/")
    assert not session.policy_origin.HasField("comparison")
    # Within the margin, or chosen by the user: nothing is compared.
    for source, more in (
        ("# good # curve=0.95\n", {}),
        (f"{FELL} # again=0.92\n", {"checkpoint": v1.CHECKPOINT_CHOICE_LAST}),
    ):
        _, listed, warnings = await play(stack, source, **more)
        assert "select" not in [entry.name.rpartition("/")[2] for entry in listed]
        assert not any(entry.reason.startswith("CHECKPOINTS") for entry in warnings)


@pytest.mark.asyncio
async def test_returns_decide_in_a_training_without_a_judge(stack: Stack) -> None:
    await stack.start()
    session, listed, _ = await play(stack, "# curve=0.9 # score=0.4 # again=0.8 # last=0.5\n", train_only=True)
    assert session.state == v1.SESSION_STATE_SUCCEEDED and session.returns.mean == pytest.approx(80)
    assert session.best_policy.startswith(f"{listed[1].name}/members/")
    assert "not judged (the last checkpoint, at 1,000 steps, returned 50.00" in origin_text(session)


def test_only_checkpoints_better_by_the_margin_are_compared() -> None:
    def member(ident: str, *scores: float | None, policy: str = "p") -> v1.Member:
        one = v1.Member(name=f"sessions/s/iterations/1/assignments/train/members/{ident}", policy=policy)
        for number, score in enumerate(scores, start=1):
            evaluation = one.evaluations.add(env_step=100 * number, returns=[100 * (score or 0)])
            rollout = evaluation.rollouts.add()
            if score is not None:
                rollout.judgment.score = score
                rollout.judgment.verdicts.add(kind=v1.JUDGE_KIND_CODE, score=score)
        return one

    failed = member("e", 0.9, 0.1)
    failed.failure.reason = "REWARD_NOT_FINITE"
    members = [member("a", 0.5, 0.9, 0.9, 0.7), member("b", 0.1, None, 0.9), member("c", 0.9, 0.9), failed]
    members += [member("d", 0.9, 0.1, policy=""), member("f"), member("g", 0.95, 0.9)]
    assert better_checkpoints(members) == {"a": 300}
    # Of returns the margin is a tenth of their range.
    returns = [member("a", 0.0, 5.0, 4.0), member("b", 0.0, 5.0, 4.6), member("c", 1.0)]
    assert better_checkpoints(returns, judged=False) == {"a": 200}


def test_an_earlier_checkpoint_is_selected_only_beyond_chance() -> None:
    def evaluation(step: int, scores: list[float]) -> v1.Evaluation:
        one = v1.Evaluation(env_step=step)
        for seed, score in enumerate(scores):
            rollout = one.rollouts.add(seed=seed)
            rollout.judgment.score = score
            rollout.judgment.verdicts.add(kind=v1.JUDGE_KIND_CODE, score=score)
        return one

    mixed = compare(evaluation(1, [1.0, 0.0] * 5), evaluation(2, [0.0, 0.9] * 5), judged=True)
    assert mixed.value > mixed.last_value and not mixed.selected and mixed.episodes == 10
    # The seeds are of unequal difficulty; seed by seed the earlier one is better.
    paired = compare(
        evaluation(1, [n / 10 + 0.05 for n in range(9)]), evaluation(2, [n / 10 for n in range(9)]), judged=True
    )
    assert paired.selected and paired.interval_low == pytest.approx(0.05)
    assert not compare(v1.Evaluation(), v1.Evaluation(), judged=True).selected
