"""The whole loop with scripted neighbours: screening, streaming judgments, people in the loop, configs, budgets, benchmarks."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import pytest
from dressage.api.internal.v1 import agent_service_pb2 as agent_pb
from dressage.api.v1 import benchmark_service_pb2 as bench_api
from dressage.api.v1 import event_pb2 as ev
from dressage.api.v1 import session_pb2 as v1
from dressage.api.v1 import session_service_pb2 as pb
from dressage.errors import FailedPrecondition

from tests.fakes.specs import reward_session
from tests.integration.orchestrator.fakes import JUDGE, author, code, watch
from tests.integration.orchestrator.stack import Stack

pytestmark = pytest.mark.asyncio


def spec(**more: Any) -> v1.SessionSpec:
    base = {"intent": "run forward fast", "environment": "environments/HalfCheetah-v5", "seeds": 1}
    return reward_session(**{**base, "steps_per_member": 1000, **more})


def of_kind(events: list[ev.Event], kind: str) -> list[Any]:
    return [getattr(event, kind) for event in events if event.HasField(kind)]


def reviser(answers: dict[int, agent_pb.Revision], fixed: list[str]) -> Any:
    """An author whose revisions are given by iteration, its repairs in order."""
    left = list(fixed)

    def answer(task: agent_pb.Task) -> agent_pb.TaskResult:
        result = author(task)
        if task.HasField("reward_author") and task.reward_author.HasField("repair"):
            result.reward.source = left.pop(0)
        elif task.HasField("reward_author"):
            result.reward.source = "# first reward # score=0.3 # curve=0.5\n"
        elif task.HasField("reviser"):
            result.revision.CopyFrom(answers[int(task.key.split("/")[1])])
        elif task.HasField("code_reviewer"):
            wrong = "first" in task.code_reviewer.source and task.code_reviewer.round == 1
            result.ClearField("elicitor")
            result.review.approved = not wrong
            if wrong:
                result.review.source = task.code_reviewer.source + "# reviewed\n"
                result.review.findings.add(kind="sign", severity="blocker", line=1, message="it pays for falling")
        return result

    return answer


@pytest.mark.timeout(900)
async def test_five_iterations_with_review_screening_rebase_variants_and_lessons(stack: Stack) -> None:
    same = "a fast run needs weight on speed"
    answers = {
        2: agent_pb.Revision(diagnosis="slow", lesson=same, planned_change="speed", source="# second # backwards\n"),
        3: agent_pb.Revision(diagnosis="slow", lesson=same, planned_change="effort", source="# third # score=0.35\n"),
        4: agent_pb.Revision(
            diagnosis="worse",
            lesson="low effort helps",
            lesson_tier="STRONG",
            planned_change="back to the second",
            source="# fourth # score=0.4\n",
            addressed_notes=["“start again from the second”: it does"],
            hyperparameters=v1.Hyperparameters(epochs=4),
            hyperparameter_reasoning="more passes",
        ),
        5: agent_pb.Revision(diagnosis="near", lesson="", planned_change="all of it", source="# good # score=0.9\n"),
    }
    stack.neighbours.agent.answer = reviser(answers, ["# second # score=0.6\n"])
    stack.neighbours.agent.tools_to_call = [
        ("get_scores", {}),
        ("get_reward_code", {"number": 1}),
        ("get_rollouts", {"number": 1}),
        ("get_judgments", {"number": 1}),
        ("get_dynamics", {"number": 1}),
        ("get_lineage", {}),
        ("get_changes", {}),
        ("get_lessons", {}),
    ]
    stack.options = {"max_reviews": 3}
    await stack.start()
    session_spec = spec(config_variants=True, tune_hyperparameters=True, approve_before_evaluation=True)
    created = await stack.sessions.CreateSession(pb.CreateSessionRequest(spec=session_spec, session_id="five"))
    watching = asyncio.create_task(watch(stack.sessions, created.name, seconds=600))
    for number in range(1, 6):
        await waiting(stack, "five", number)
        if number == 3:
            steer = pb.SteerSessionRequest(name=created.name, note="start again from the second", rebase_to=2)
            await stack.sessions.SteerSession(steer)
        await stack.sessions.ApproveSession(pb.ApproveSessionRequest(name=created.name, note=f"go {number}"))
    events = await watching
    session = await stack.sessions.GetSession(pb.GetSessionRequest(name=created.name))
    assert session.state == v1.SESSION_STATE_SUCCEEDED, session.state_reason
    assert session.current_iteration == 5 and session.confirmation.passed and session.approval_wait_seconds > 0

    entries = [
        await stack.sessions.GetIteration(pb.GetIterationRequest(name=f"{created.name}/iterations/{n}"))
        for n in range(1, 6)
    ]
    # The review's corrected module is what was trained; the second round approved it.
    assert entries[0].reward.source.endswith("# reviewed\n")
    keys = stack.neighbours.agent.keys
    assert {"iterations/1/review/reward/1", "iterations/1/review/judge/1", "iterations/1/review/reward/2"} <= set(keys)
    assert "iterations/1/review/judge/2" not in keys
    # A checkpoint was judged during training, and the diagnosis contains the fall of the judgment.
    early = [judged for judged in of_kind(events, "judged") if judged.env_step]
    assert {judged.env_step for judged in early} == {500} and early[0].judgment.score == pytest.approx(0.5)
    assert [(p.env_step, round(p.score, 2)) for p in entries[0].reward.curve] == [(500, 0.5), (1000, 0.3)]
    # The second reward was ordered backwards: it went back once, and the steps of a training were spared.
    outcomes = [s.outcome for s in of_kind(events, "screened") if s.screening.HasField("agreement")]
    assert outcomes[0] == "rejected" and "trained" in outcomes and outcomes.count("rejected") == 1
    assert (
        entries[1].reward.screening.rounds == 1
        and entries[1].reward.screening.agreement > 0
        and entries[1].repairs == 1
    )
    assert session.env_steps_saved == 3 * 1000
    repair = next(t for t in stack.neighbours.agent.tasks if t.key == "iterations/2/reward_author/repair/1")
    failure = repair.reward_author.repair.failures[0]
    assert failure.rule == "pre-screening" and "-1.00" in failure.message and "judged" in failure.seen
    # Configs: variants in all iterations, and also the model's proposal and its base.
    assert [c.id for c in entries[0].reward.configs] == ["default", "conservative", "aggressive"]
    assert [c.id for c in entries[3].reward.configs] == ["base", "conservative", "aggressive", "proposed"]
    assert (
        entries[3].reward.configs[3].hyperparameters.epochs == 4
        and entries[3].reward.hyperparameter_reasoning == "more passes"
    )
    assert len(entries[0].reward.config_scores) == 3
    # The person's note is quoted in the lineage, and the revision starts from the person's iteration.
    assert [entry.parent.rpartition("/")[2] for entry in entries] == ["", "1", "2", "2", "4"]
    task = next(t.reviser for t in stack.neighbours.agent.tasks if t.key == "iterations/4/reviser")
    assert task.history[-1].number == 2 and any("iteration 2" in note for note in task.notes)
    lineage = await stack.sessions.GetLineage(pb.GetLineageRequest(name=created.name))
    assert lineage.nodes[3].notes[0].startswith("“start again") and "go 4" in list(lineage.nodes[3].notes)
    assert lineage.nodes[1].diff and lineage.nodes[4].best and not lineage.nodes[0].best
    held = {lesson.text: lesson for lesson in lineage.lessons}
    assert held[same].tier == pb.Lesson.TIER_STRONG and held[same].support == 2
    assert held["low effort helps"].tier == pb.Lesson.TIER_STRONG
    assert [entry.tier for entry in task.known_lessons] == ["STRONG"] and len(task.tried_changes) == 2
    results = stack.neighbours.agent.tool_results
    assert not any(result.is_error for result in results) and len(results) == 4 * 8
    assert results[1].content == entries[0].reward.source and results[5].content == "1 0.30 *"
    # What it cost is known by role.
    assert session.cost_by_role["code_reviewer"].requests == 7
    assert sum(cost.requests for cost in session.cost_by_role.values()) == session.cost.requests
    last = of_kind(events, "agent_replied")[-1]
    assert last.session_cost.requests == session.cost.requests


async def waiting(stack: Stack, session: str, number: int) -> None:
    async with asyncio.timeout(240):
        while True:
            final = await stack.sessions.GetSession(pb.GetSessionRequest(name=f"sessions/{session}"))
            if final.awaiting_approval == number:
                return
            assert not final.HasField("end_time"), final.state_reason
            await asyncio.sleep(0.05)


async def test_an_edited_proposal_a_failed_end_and_an_extension(stack: Stack) -> None:
    """A person replaces the reward that waits; the reviser fails; the best is delivered; the session is extended."""

    def answer(task: agent_pb.Task) -> agent_pb.TaskResult:
        if task.HasField("reviser") and "-e1" not in task.key:
            raise FailedPrecondition("the key was revoked", reason="LLM_UNAUTHENTICATED")
        result = author(task)
        if task.HasField("reviser"):
            result.revision.source = "# good # score=0.95\n"
        return result

    stack.neighbours.agent.answer = answer
    await stack.start()
    session_spec = spec(approve_before_evaluation=True, reward_source="# weak\n", judge_source=JUDGE)
    created = await stack.sessions.CreateSession(pb.CreateSessionRequest(spec=session_spec, session_id="edit"))
    await waiting(stack, "edit", 1)
    for request, reason in (
        (pb.SteerSessionRequest(name=created.name), "INVALID_ARGUMENT"),
        (pb.SteerSessionRequest(name=created.name, proposal_source="# bad\n"), "INVALID_ARGUMENT"),
        (pb.SteerSessionRequest(name=created.name, rebase_to=7), "INVALID_ARGUMENT"),
    ):
        with pytest.raises(grpc.aio.AioRpcError) as wrong:
            await stack.sessions.SteerSession(request)
        assert code(wrong.value) == reason
    with pytest.raises(grpc.aio.AioRpcError) as other:
        await stack.sessions.ApproveSession(pb.ApproveSessionRequest(name=created.name, iteration=2))
    assert code(other.value) == "FAILED_PRECONDITION"
    edited = "# mine # score=0.5\n"
    await stack.sessions.SteerSession(pb.SteerSessionRequest(name=created.name, proposal_source=edited))
    await replaced(stack, "edit", edited)
    # After a restart the server still waits for approval of the same proposal.
    await stack.stop()
    await stack.start()
    await waiting(stack, "edit", 1)
    criteria = [v1.IntentCriterion(title="fast", description="2 m/s")]
    await stack.sessions.SteerSession(pb.SteerSessionRequest(name=created.name, criteria=criteria))
    await stack.sessions.ApproveSession(pb.ApproveSessionRequest(name=created.name))
    await watch(stack.sessions, created.name)
    session = await stack.sessions.GetSession(pb.GetSessionRequest(name=created.name))
    assert session.state == v1.SESSION_STATE_FAILED and session.failure.reason == "LLM_UNAUTHENTICATED"
    assert session.best_policy and session.best_video and session.best_judgment.score == pytest.approx(0.5)
    first = await stack.sessions.GetIteration(pb.GetIterationRequest(name=f"{created.name}/iterations/1"))
    assert first.reward.source == edited and list(first.edited) == ["proposal"] and first.author == "user"
    assert session.spec.criteria[0].title == "fast"

    budget = v1.Budget(env_steps=9000)
    await stack.sessions.ResumeSession(pb.ResumeSessionRequest(name=created.name, budget=budget))
    await waiting(stack, "edit", 2)
    await stack.sessions.ApproveSession(pb.ApproveSessionRequest(name=created.name))
    await watch(stack.sessions, created.name)
    session = await stack.sessions.GetSession(pb.GetSessionRequest(name=created.name))
    assert session.state == v1.SESSION_STATE_SUCCEEDED, session.state_reason
    assert session.epoch == 1 and session.spec.budget.env_steps == 9000
    assert stack.neighbours.agent.tasks[-1].reviser.brief.criteria[0].title == "fast"


async def replaced(stack: Stack, session: str, source: str) -> None:
    async with asyncio.timeout(240):
        while True:
            name = f"sessions/{session}/iterations/1"
            result = await stack.sessions.GetIteration(pb.GetIterationRequest(name=name))
            whole = await stack.sessions.GetSession(pb.GetSessionRequest(name=f"sessions/{session}"))
            if result.reward.source == source and whole.awaiting_approval:
                return
            await asyncio.sleep(0.05)


async def test_budgets_stages_and_labels(stack: Stack) -> None:
    await stack.start()
    # Two authors at once: each has half of what is left.
    priced = spec(budget=v1.Budget(dollars=0.03, tokens=1000), max_iterations=1)
    created = await stack.sessions.CreateSession(pb.CreateSessionRequest(spec=priced, session_id="shares"))
    cases = [
        bench_api.BenchmarkCase(intent=f"hop {n}", environment="environments/Hopper-v5", difficulty="easy")
        for n in range(4)
    ]
    template = reward_session(
        reward_source="# score=0.5\n", judge_source=JUDGE, seeds=1, steps_per_member=100, max_iterations=1
    )
    template.model = "template/v1"
    benchmark = await stack.benchmarks.CreateBenchmark(
        bench_api.CreateBenchmarkRequest(cases=cases, template=template, staged=True, stage_gate=0.6)
    )
    assert [case.stage for case in benchmark.cases] == [1, 1, 2, 2]
    request = bench_api.WatchBenchmarkRequest(name=benchmark.name)
    last = [answer.benchmark async for answer in stack.benchmarks.WatchBenchmark(request, timeout=300)][-1]
    assert last.completed == 2 and last.passed == 0 and "below the gate of 0.6" in last.stopped_reason
    group = last.groups[0]
    assert (group.kind, group.total, group.completed, group.success_rate) == ("all", 4, 2, 0.0)
    assert 0 < group.success_high < 1 and list(last.cases[0].iteration_scores) == pytest.approx([0.5])
    assert not last.cases[2].session

    await watch(stack.sessions, created.name)
    authors = [task.remaining_budget for task in stack.neighbours.agent.tasks if task.key in FIRST]
    assert [(left.dollars, left.tokens) for left in authors] == [(pytest.approx(0.015), 500)] * 2
    session = await stack.sessions.GetSession(pb.GetSessionRequest(name=created.name))
    # Two authors and a repair took the three cents: the training could not be begun.
    assert session.exhaustion_reason == v1.EXHAUSTION_REASON_DOLLARS and session.cost.requests == 3

    request = pb.ListAssignmentsRequest(parent=f"{last.cases[0].session}/iterations/1")
    listed = (await stack.sessions.ListAssignments(request)).assignments
    rollouts = listed[0].members[0].evaluations[0].rollouts
    for place, rollout in enumerate(rollouts):
        ask = pb.LabelRolloutRequest(rollout=rollout.artifact, score=0.2 + 0.3 * place, comment="seen")
        labelled = await stack.sessions.LabelRollout(ask)
    assert labelled.agreement.rollouts == 3 and not labelled.agreement.HasField("spearman")  # one score for all three
    assert labelled.agreement.kappa == pytest.approx(0.0)
    session = await stack.sessions.GetSession(pb.GetSessionRequest(name=last.cases[0].session))
    assert session.label_agreement == labelled.agreement


FIRST = ("iterations/1/reward_author", "judge_author")
