"""What authors of a session are given, and a revision that changes length and networks of the training."""

from __future__ import annotations

import json

import pytest
from dressage.api.internal.v1 import agent_service_pb2 as agent_pb
from dressage.api.v1 import session_pb2 as v1
from dressage.api.v1 import session_service_pb2 as pb
from dressage.errors import FailedPrecondition, ResourceExhausted
from dressage_orchestrator import clients
from dressage_orchestrator.lifecycle import outages

from tests.fakes.specs import reward_session
from tests.integration.orchestrator.fakes import author, watch
from tests.integration.orchestrator.stack import Stack

pytestmark = pytest.mark.asyncio
OPTIONS = v1.EnvironmentOptions(max_episode_steps=200)


def longer(task: agent_pb.Task) -> agent_pb.TaskResult:
    """The default script; the revision asks for more steps than allowed, and for larger networks."""
    result = author(task)
    if task.HasField("reviser"):
        result.revision.steps_per_member = 10**9
        result.revision.hyperparameters.hidden_sizes.extend([128, 128])
        result.revision.hyperparameter_reasoning = "the return still rose"
    return result


async def test_authors_know_the_session_and_a_revision_trains_longer(stack: Stack) -> None:
    stack.neighbours.agent.answer = longer
    await stack.start()
    spec = reward_session(
        intent="run", environment="environments/HalfCheetah-v5", seeds=1, steps_per_member=1000, max_iterations=3
    )
    spec.environment_options.CopyFrom(OPTIONS)
    spec.budget.env_steps = 5000
    spec.budget.dollars = 2.0
    created = await stack.sessions.CreateSession(pb.CreateSessionRequest(spec=spec, session_id="told"))
    events = await watch(stack.sessions, created.name)

    tasks = {task.key.rpartition("iterations/")[2]: task for task in stack.neighbours.agent.tasks}
    facts = {key: getattr(task, task.WhichOneof("role")).brief.facts for key, task in tasks.items()}
    assert set(facts) == {"judge_author", "1/reward_author", "1/reward_author/repair/1", "2/reviser"}
    for given in facts.values():
        assert given.environment_options == OPTIONS and given.seeds == 1 and given.steps_per_member == 1000
        assert given.pass_threshold == 0.7 and given.max_iterations == 3
    assert facts["1/reward_author"].iteration == 1 and facts["1/reward_author"].budget == spec.budget
    # The reviser is given what is left, and may not train for longer than that allows.
    assert facts["2/reviser"].iteration == 2 and facts["2/reviser"].budget.env_steps == 4000
    assert facts["2/reviser"].budget.dollars == pytest.approx(2.0 - 0.03)
    assert tasks["2/reviser"].reviser.tune_hyperparameters
    assert tasks["2/reviser"].reviser.highest_steps == 4000 // 2

    second = await stack.sessions.GetIteration(pb.GetIterationRequest(name=f"{created.name}/iterations/2"))
    assert second.reward.steps_per_member == 2000
    assert [(c.id, list(c.hyperparameters.hidden_sizes)) for c in second.reward.configs] == [
        ("default", []),
        ("proposed", [128, 128]),
    ]
    session = await stack.sessions.GetSession(pb.GetSessionRequest(name=created.name))
    assert session.state == v1.SESSION_STATE_SUCCEEDED, session.state_reason
    assert session.env_steps == 1000 + 2 * 2000
    warnings = [event.warning.message for event in events if event.warning.reason == "SUGGESTION_CLAMPED"]
    assert len(warnings) == 1 and "steps_per_member 1e+09 → 2000" in warnings[0]


async def test_roles_have_their_models_and_an_unusable_review_ends_no_session(stack: Stack) -> None:
    def answer(task: agent_pb.Task) -> agent_pb.TaskResult:
        if task.HasField("code_reviewer"):
            raise FailedPrecondition("the reviewer gave no usable reply", reason="LLM_REPLY_UNUSABLE")
        return author(task)

    stack.neighbours.agent.answer = answer
    stack.options = {"max_reviews": 1}
    await stack.start()
    spec = reward_session(
        intent="run", environment="environments/HalfCheetah-v5", seeds=1, steps_per_member=1000, model="test/author"
    )
    spec.thinking = "low"
    spec.roles["judge"].CopyFrom(v1.RoleModel(model="test/judge", thinking="max", api_base="http://judge"))
    spec.roles["video"].model = "test/eyes"
    created = await stack.sessions.CreateSession(pb.CreateSessionRequest(spec=spec, session_id="roles"))
    events = await watch(stack.sessions, created.name)
    session = await stack.sessions.GetSession(pb.GetSessionRequest(name=created.name))
    assert session.state == v1.SESSION_STATE_SUCCEEDED, session.state_reason
    sent = {t.WhichOneof("role"): (t.model, t.thinking, t.api_base) for t in stack.neighbours.agent.tasks}
    assert sent["judge_author"] == ("test/judge", "max", "http://judge")
    assert sent["reward_author"] == sent["reviser"] == sent["code_reviewer"] == ("test/author", "low", "")
    videos = [request for request in stack.neighbours.judge.judged if request.HasField("video")]
    assert videos and {(request.model, request.thinking) for request in videos} == {("test/eyes", "low")}
    warnings = [event.warning.message for event in events if event.warning.reason == "NOT_REVIEWED"]
    assert any("the judge is not reviewed: the reviewer gave no usable reply" in text for text in warnings)


async def test_a_provider_that_is_down_is_waited_for_until_it_answers(stack: Stack, monkeypatch) -> None:
    monkeypatch.setattr(outages, "_FIRST_PAUSE", 0.1)
    failing = 2

    def answer(task: agent_pb.Task) -> agent_pb.TaskResult:
        nonlocal failing
        if task.HasField("reviser") and failing:
            failing -= 1
            # Not UNAVAILABLE, which the client of llm-agent repeats by itself.
            raise ResourceExhausted("the provider refuses requests", reason="LLM_RATE_LIMITED")
        return author(task)

    stack.neighbours.agent.answer = answer
    stack.neighbours.agent.tools_to_call = []
    await stack.start()
    spec = reward_session(intent="run", environment="environments/HalfCheetah-v5", seeds=1, steps_per_member=1000)
    spec.provider_wait.FromSeconds(3600)
    created = await stack.sessions.CreateSession(pb.CreateSessionRequest(spec=spec, session_id="outage"))
    events = await watch(stack.sessions, created.name)
    session = await stack.sessions.GetSession(pb.GetSessionRequest(name=created.name))
    assert session.state == v1.SESSION_STATE_SUCCEEDED, session.state_reason
    waits = [event.warning.message for event in events if event.warning.reason == "PROVIDER_UNAVAILABLE"]
    assert waits and "refuses requests" in waits[0] and "the last one 60 minutes later" in waits[0]
    assert not failing


@pytest.mark.parametrize("ends", [False, True])
async def test_a_full_queue_is_waited_for_within_the_budget(stack: Stack, monkeypatch, ends: bool) -> None:
    monkeypatch.setattr(outages, "_QUEUE_PAUSE", 0.2)
    monkeypatch.setattr(outages, "_LONGEST_QUEUE_PAUSE", 0.2)
    monkeypatch.setattr(clients, "_RETRY_SECONDS", 0.3)
    full = {"check": 3, "judge": 3, "agent": 3} if ends else {"check": 10**6, "judge": 0, "agent": 0}

    def busy(kind: str, reason: str) -> None:
        if full[kind]:
            full[kind] -= 1
            raise ResourceExhausted("256 checks and judgments are waiting already", reason=reason)

    def answer(task: agent_pb.Task) -> agent_pb.TaskResult:
        busy("agent", "LLM_AGENT_BUSY")
        return author(task)

    stack.neighbours.agent.answer = answer
    stack.neighbours.judge.admit = lambda kind: busy(
        kind, "SANDBOX_QUEUE_FULL" if kind == "check" else "SANDBOX_TIMEOUT"
    )
    await stack.start()
    spec = reward_session(intent="run", environment="environments/HalfCheetah-v5", seeds=1, steps_per_member=1000)
    if not ends:
        spec.budget.wall_time.FromSeconds(3)
    created = await stack.sessions.CreateSession(pb.CreateSessionRequest(spec=spec, session_id="busy"))
    events = await watch(stack.sessions, created.name)
    session = await stack.sessions.GetSession(pb.GetSessionRequest(name=created.name))
    state = v1.SESSION_STATE_SUCCEEDED if ends else v1.SESSION_STATE_EXHAUSTED
    assert session.state == state, session.state_reason
    waits = [event.warning.message for event in events if event.warning.reason == "SERVICE_BUSY"]
    assert waits and "waiting already" in waits[0] and "The session waits" in waits[0]


async def test_an_author_changes_the_environment_that_its_caller_left_open(stack: Stack) -> None:
    def answer(task: agent_pb.Task) -> agent_pb.TaskResult:
        result = author(task)
        if task.HasField("reward_author") and not task.reward_author.HasField("repair"):
            result.reward.environment_options.CopyFrom(
                v1.EnvironmentOptions(terminate_when_unhealthy=False, max_episode_steps=300)
            )
            result.reward.environment_reasoning = "it has to lie down"
        return result

    stack.neighbours.agent.answer = answer
    await stack.start()
    spec = reward_session(intent="lie", environment="environments/Hopper-v5", seeds=1, steps_per_member=1000)
    spec.environment_options.max_episode_steps = 200
    created = await stack.sessions.CreateSession(pb.CreateSessionRequest(spec=spec, session_id="floor"))
    events = await watch(stack.sessions, created.name)
    session = await stack.sessions.GetSession(pb.GetSessionRequest(name=created.name))
    assert session.state == v1.SESSION_STATE_SUCCEEDED, session.state_reason
    effective = v1.EnvironmentOptions(terminate_when_unhealthy=False, max_episode_steps=200)
    assert session.spec.environment_options == effective
    assert session.options_of_author == v1.EnvironmentOptions(terminate_when_unhealthy=False)
    key = f"{created.name}/iterations/1/assignments/train/spec.json"
    options = json.loads(stack.store.get(key))["train"]["options"]
    assert options == {"max_episode_steps": 200, "terminate_when_unhealthy": False}
    (repair,) = [task for task in stack.neighbours.agent.tasks if task.reward_author.HasField("repair")]
    assert repair.reward_author.brief.facts.environment_options == effective
    messages = [event.warning.message for event in events if event.warning.reason == "ENVIRONMENT_CHANGED"]
    assert len(messages) == 1 and "it has to lie down" in messages[0]
