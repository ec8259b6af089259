"""`--checkpoint best`: the best checkpoint on search seeds is judged, confirmed and delivered, if it really is better."""

from __future__ import annotations

from typing import Any

import pytest
from dressage.api.v1 import session_pb2 as v1
from dressage.api.v1 import session_service_pb2 as pb
from dressage_orchestrator.methods.reward.judgment import better_checkpoints

from tests.fakes.specs import reward_session
from tests.integration.orchestrator.fakes import JUDGE, watch
from tests.integration.orchestrator.stack import Stack

FELL = "# good # curve=0.95"
"""A reward of which the checkpoint at half of the steps scores 0.95, and the last one 0.9."""


async def play(stack: Stack, source: str, **more: Any) -> tuple[v1.Session, list[v1.Assignment]]:
    base = {"intent": "run forward fast", "environment": "environments/HalfCheetah-v5", "seeds": 2, "max_iterations": 1}
    spec = reward_session(
        **{
            **base,
            "steps_per_member": 1000,
            "reward_source": source,
            "judge_source": JUDGE,
            "early_stop": False,
            **more,
        }
    )
    created = await stack.sessions.CreateSession(pb.CreateSessionRequest(spec=spec))
    await watch(stack.sessions, created.name)
    session = await stack.sessions.GetSession(pb.GetSessionRequest(name=created.name))
    listing = pb.ListAssignmentsRequest(parent=f"{created.name}/iterations/1")
    return session, list((await stack.sessions.ListAssignments(listing)).assignments)


@pytest.mark.asyncio
async def test_the_best_checkpoint_is_confirmed_and_delivered(stack: Stack) -> None:
    await stack.start()
    best = v1.CHECKPOINT_CHOICE_BEST
    session, listed = await play(stack, f"{FELL} # again=0.92\n", checkpoint=best)
    assert session.state == v1.SESSION_STATE_SUCCEEDED
    assert session.best_judgment.score == pytest.approx(0.92) and session.confirmation.score == pytest.approx(0.85)
    training, selection, confirmation = listed
    assert [entry.name.rpartition("/")[2] for entry in listed] == ["train", "select", "confirm"]
    for member in training.members:
        assert member.delivered_env_step == 500 and member.policy.startswith(selection.name)
        # Later checkpoints stay, for the curve; the chosen one has as many episodes as the last one.
        assert [(e.env_step, len(e.returns)) for e in member.evaluations] == [(500, 10), (1000, 10)]
    assert session.best_policy.startswith(f"{selection.name}/members/") and "/500_median" in session.best_video
    assert {m.evaluations[0].env_step for m in confirmation.members} == {500}
    assert session.env_steps == 2 * 1000  # playing a checkpoint trains nothing

    # It was the luckiest of a few episodes: on ten it scores less than the last one.
    session, listed = await play(stack, f"{FELL} # again=0.89\n", checkpoint=best)
    assert session.best_judgment.score == pytest.approx(0.9) and {m.delivered_env_step for m in listed[0].members} == {
        0
    }
    assert session.best_policy.startswith(f"{listed[0].name}/members/")

    session, listed = await play(stack, f"{FELL}\n")
    assert session.best_judgment.score == pytest.approx(0.9) and len(listed) == 2


def test_only_better_checkpoints_are_played_again() -> None:
    def member(ident: str, *scores: float | None, policy: str = "p") -> v1.Member:
        one = v1.Member(name=f"sessions/s/iterations/1/assignments/train/members/{ident}", policy=policy)
        for place, score in enumerate(scores, start=1):
            rollout = one.evaluations.add(env_step=100 * place).rollouts.add()
            if score is not None:
                rollout.judgment.score = score
                rollout.judgment.verdicts.add(kind=v1.JUDGE_KIND_CODE, score=score)
        return one

    failed = member("e", 0.9, 0.1)
    failed.failure.reason = "REWARD_NOT_FINITE"
    members = [member("a", 0.5, 0.9, 0.9, 0.7), member("b", 0.1, None, 0.9), member("c", 0.9, 0.9), failed]
    members += [member("d", 0.9, 0.1, policy=""), member("f")]
    assert better_checkpoints(members) == {"a": 300}
