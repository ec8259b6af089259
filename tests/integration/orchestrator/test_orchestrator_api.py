"""The public API without training: bad input, pages, cards, intents, artifacts, estimates, benchmarks; and `Work`'s fence."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

import grpc
import pytest
from dressage.api.internal.v1 import run_service_pb2 as work
from dressage.api.internal.v1 import run_service_pb2_grpc
from dressage.api.v1 import artifact_service_pb2 as artifact_api
from dressage.api.v1 import benchmark_service_pb2 as benchmark_api
from dressage.api.v1 import environment_service_pb2 as environment_api
from dressage.api.v1 import intent_service_pb2 as intent_api
from dressage.api.v1 import session_pb2 as v1
from dressage.api.v1 import session_service_pb2 as pb
from dressage.errors import DressageError, InvalidArgument, NotFound
from dressage.limits import CHECKPOINT_INDEX
from dressage.rpc_errors import from_rpc
from dressage_orchestrator.database import sessions
from dressage_orchestrator.database.engine import Database, sqlite_url
from dressage_orchestrator.launch.tokens import RunTokens, load_or_create_secret
from google.protobuf.duration_pb2 import Duration

from tests.fakes.specs import reward_session
from tests.integration.orchestrator.fakes import BAD, GOOD, JUDGE, code, watch
from tests.integration.orchestrator.stack import Stack


def spec(**more: object) -> v1.SessionSpec:
    base = {"intent": "run", "environment": "environments/Hopper-v5", "seeds": 1, "steps_per_member": 100}
    return reward_session(**{**base, **more})


async def refused(call: Any) -> DressageError:
    with pytest.raises(grpc.aio.AioRpcError) as error:
        await call
    return from_rpc(error.value)


def add_ended_session(stack: Stack, session: str) -> None:
    database = Database(sqlite_url(stack.folder / "dressage.db"))
    with database.begin() as tx:
        sessions.create(tx, session, spec())
        sessions.change(tx, session, lambda entry: setattr(entry, "state", v1.SESSION_STATE_CANCELLED))
    database.close()


BAD_SPECS: list[tuple[dict[str, object], str, str]] = [
    ({"intent": " \n "}, "spec.intent", "a description of the behaviour"),
    ({"intent": ""}, "spec.intent", "at least 1 character"),
    ({"intent": "x" * 100_000}, "spec.intent", "at most 8000"),
    ({"environment": "environments/Cheetah-v9"}, "spec.environment", "HalfCheetah-v5"),
    ({"steps_per_member": -1}, "spec.reward.steps_per_member", "greater than or equal to 0"),
    ({"model": "openai/gpt"}, "spec.model", "OPENAI_API_KEY"),
    ({"configs": [v1.Config(id="a"), v1.Config(id="a")]}, "spec.reward.configs", "different ids"),
    ({"budget": v1.Budget(env_steps=99)}, "spec.budget.env_steps", "at least 100"),
    (
        {"budget": v1.Budget(wall_time=Duration(seconds=-1))},
        "spec.budget.wall_time",
        "equal to 315360000s (got -1 s)",
    ),
    ({"seed": 999_999_999}, "spec.seed", "evaluation seeds begin there"),
    ({"train_only": True}, "spec.reward.reward_source", "train_only"),
    ({"algorithm": "sac", "environment": "environments/CartPole-v1"}, "spec.reward.algorithm", "discrete actions"),
    (
        {
            "algorithm": "sac",
            "configs": [v1.Config(id="a", hyperparameters=v1.Hyperparameters(epochs=3))],
        },
        "spec.reward.configs[0].hyperparameters.epochs",
        "sac has learning_rate",
    ),
    (
        {
            "algorithm": "sac",
            "environment": "environments/Humanoid-v5",
            "steps_per_member": 500_000,
            "configs": [
                v1.Config(id="a", hyperparameters=v1.Hyperparameters(replay_size=1_000_000, observation_inputs=0))
            ],
            "seeds": 3,
        },
        "spec.reward.configs[0].hyperparameters.replay_size",
        "Set replay_size to at most",
    ),
    ({"pool": "large"}, "spec.pool", "one of gpu, local"),
]


async def test_bad_specs_are_refused_with_field_and_remedy(stack: Stack) -> None:
    await stack.start()
    for wrong, field, hint in BAD_SPECS:
        for call in (
            stack.sessions.CreateSession(pb.CreateSessionRequest(spec=spec(**wrong))),
            stack.sessions.EstimateSession(pb.EstimateSessionRequest(spec=spec(**wrong))),
        ):
            error = await refused(call)
            assert isinstance(error, InvalidArgument), (wrong, error)
            assert error.field == field and hint in error.message, (wrong, error.field, error.message)
    assert not (await stack.sessions.ListSessions(pb.ListSessionsRequest())).sessions


async def test_a_method_that_is_not_installed_is_refused(stack: Stack) -> None:
    await stack.start()
    session_spec = v1.SessionSpec(intent="run", environment="environments/Hopper-v5")
    session_spec.custom.SetInParent()
    for call in (
        stack.sessions.CreateSession(pb.CreateSessionRequest(spec=session_spec)),
        stack.sessions.EstimateSession(pb.EstimateSessionRequest(spec=session_spec)),
    ):
        error = await refused(call)
        assert isinstance(error, InvalidArgument) and error.reason == "METHOD_NOT_AVAILABLE"
        assert error.field == "spec.custom" and error.message.startswith("spec.custom: ")


async def test_environments_intents_artifacts_estimates(stack: Stack) -> None:
    await stack.start()
    listed = await stack.environments.ListEnvironments(environment_api.ListEnvironmentsRequest(page_size=1))
    assert listed.environments[0].name == "environments/Ant-v5" and listed.next_page_token
    more = environment_api.ListEnvironmentsRequest(page_size=1, page_token=listed.next_page_token)
    assert (await stack.environments.ListEnvironments(more)).environments[0].name != listed.environments[0].name
    name = environment_api.GetEnvironmentRequest(name="environments/HalfCheetah-v5")
    card = await stack.environments.GetEnvironment(name)
    assert card.actions and "x_velocity" in {field.name for field in card.fields} and "x_velocity" in card.text
    assert (card.action_kind, card.num_actions) == ("box", 0)
    name = environment_api.GetEnvironmentRequest(name="environments/CartPole-v1")
    discrete = await stack.environments.GetEnvironment(name)
    assert (discrete.action_kind, discrete.num_actions) == ("discrete", 2)
    assert (discrete.methods, discrete.target, discrete.num_observations) == (["reward", "parameters", "code"], 475, 0)
    nim = await stack.environments.GetEnvironment(environment_api.GetEnvironmentRequest(name="environments/Nim-v0"))
    assert (nim.methods, nim.target, nim.num_observations, nim.pack) == (["parameters", "code"], 0.95, 11, "")
    assert not (
        await stack.environments.GetEnvironment(environment_api.GetEnvironmentRequest(name="environments/Ant-v5"))
    ).pack
    refusal = await refused(
        stack.sessions.CreateSession(
            pb.CreateSessionRequest(spec=v1.SessionSpec(intent="win", environment="environments/Nim-v0"))
        )
    )
    assert isinstance(refusal, InvalidArgument) and refusal.field == "spec.environment"
    assert "`--method parameters` or `--method code`" in refusal.message
    error = await refused(
        stack.environments.GetEnvironment(environment_api.GetEnvironmentRequest(name="environments/X"))
    )
    assert error.reason == "ENVIRONMENT_NOT_FOUND"

    request = environment_api.GetEnvironmentModelRequest(name="environments/Hopper-v5")
    model = await stack.environments.GetEnvironmentModel(request)
    assert (model.path, list(model.files)) == ("hopper.xml", []) and 'name="foot_geom"' in model.xml
    request.name = "environments/CartPole-v1"
    assert (await refused(stack.environments.GetEnvironmentModel(request))).reason == "NO_XML_MODEL"

    ask = intent_api.ElicitRequest(intent="run", environment="environments/Hopper-v5", model="test/m")
    assert (await stack.intents.Elicit(ask)).criteria[0].title == "speed"
    ask.model = "openai/gpt-4o"
    refusal = await refused(stack.intents.Elicit(ask))
    assert isinstance(refusal, InvalidArgument) and refusal.reason == "MODEL_NOT_CONFIGURED", "no call of the provider"
    assert refusal.message.startswith("model: 'openai/gpt-4o' cannot be used: no OPENAI_API_KEY")

    add_ended_session(stack, "x")
    stack.store.put("sessions/x/policy/w.safetensors", b"0123456789" * 300_000)
    stack.store.put("sessions/x/a.json", b"{}")
    page = await stack.artifacts.ListArtifacts(artifact_api.ListArtifactsRequest(prefix="sessions/x/", page_size=1))
    assert [entry.key for entry in page.artifacts] == ["sessions/x/a.json"]
    assert page.artifacts[0].content_type == "application/json"
    rollout = "sessions/x/rollouts/1.npz"
    stack.store.put(rollout, b"states")
    for _ in range(2):
        poses = await stack.artifacts.GetRolloutPoses(artifact_api.GetRolloutPosesRequest(rollout=rollout))
        assert (poses.key, poses.size) == ("sessions/x/rollouts/1.poses.npz", 5)
    assert stack.neighbours.renderer.posed == [rollout], "they are computed once"
    missing = artifact_api.GetRolloutPosesRequest(rollout="sessions/x/rollouts/2.npz")
    assert isinstance(await refused(stack.artifacts.GetRolloutPoses(missing)), NotFound)
    stack.store.put("sessions/x/candidates/3/rollouts/1.npz", b"states")
    for _ in range(2):
        ask = artifact_api.GetRolloutVideoRequest(rollout="sessions/x/candidates/3/rollouts/1.npz")
        film = await stack.artifacts.GetRolloutVideo(ask)
        assert (film.key, film.content_type) == ("sessions/x/candidates/3/videos/1.mp4", "video/mp4")
    assert stack.neighbours.renderer.rendered == ["sessions/x/candidates/3/rollouts/1.npz"], "it is rendered once"
    absent = artifact_api.GetRolloutVideoRequest(rollout="sessions/x/candidates/3/rollouts/2.npz")
    assert isinstance(await refused(stack.artifacts.GetRolloutVideo(absent)), NotFound)
    key = "sessions/x/policy/w.safetensors"
    chunks = stack.artifacts.ReadArtifact(artifact_api.ReadArtifactRequest(key=key, offset=5))
    data = [chunk.data async for chunk in chunks]
    assert b"".join(data) == stack.store.get(key)[5:] and max(map(len, data)) <= 1 << 20
    for bad, kind in (("sessions/none", "NOT_FOUND"), ("sessions/../secret", "INVALID_ARGUMENT")):
        with pytest.raises(grpc.aio.AioRpcError) as wrong:
            await stack.artifacts.GetArtifact(artifact_api.GetArtifactRequest(key=bad))
        assert code(wrong.value) == kind

    whole = v1.SessionSpec(intent="run", environment="environments/HalfCheetah-v5", model="template/v1")
    free = await stack.sessions.EstimateSession(pb.EstimateSessionRequest(spec=whole))
    assert free.env_steps_per_iteration == 3 * 500_000 and free.dollars_per_iteration == 0
    assert not free.uses_language_model and 0.2 < free.minutes_per_iteration < 10
    whole.environment = "environments/Humanoid-v5"  # four to six times as much simulation for a step
    slow = await stack.sessions.EstimateSession(pb.EstimateSessionRequest(spec=whole))
    assert slow.minutes_per_iteration > 3 * free.minutes_per_iteration
    whole.model = "test/m"
    priced = await stack.sessions.EstimateSession(pb.EstimateSessionRequest(spec=whole))
    assert priced.uses_language_model and priced.least_model_calls_per_iteration == 1  # a review
    assert priced.least_dollars_per_iteration < priced.dollars_per_iteration < priced.most_dollars_per_iteration
    assert priced.options_of_author == ["max_episode_steps", "terminate_when_unhealthy"]
    assert priced.max_episode_steps == 1000 and priced.terminates_when_unhealthy
    # The model has no vision support; one that has it votes on videos.
    whole.roles["video"].model = "test/eyes"
    seeing = await stack.sessions.EstimateSession(pb.EstimateSessionRequest(spec=whole))
    assert seeing.model_calls_per_iteration > priced.model_calls_per_iteration + 10
    whole.environment_options.terminate_when_unhealthy = False
    fixed = await stack.sessions.EstimateSession(pb.EstimateSessionRequest(spec=whole))
    assert fixed.options_of_author == ["max_episode_steps"] and not fixed.terminates_when_unhealthy


async def test_the_plan_states_the_terminations_of_a_packs_task(stack: Stack) -> None:
    await stack.start()
    spec = v1.SessionSpec(intent="walk forward", environment="environments/Mjlab-Velocity-Flat-Unitree-Go1")
    plan = await stack.sessions.EstimateSession(pb.EstimateSessionRequest(spec=spec))
    assert plan.terminates_when_unhealthy


async def test_pages_of_sessions_hold_each_once_newest_first(stack: Stack) -> None:
    await stack.start()
    names = [
        (
            await stack.sessions.CreateSession(
                pb.CreateSessionRequest(spec=spec(reward_source=BAD, judge_source=JUDGE))
            )
        ).name
        for _ in range(5)
    ]
    for name in names:
        await watch(stack.sessions, name)
    seen, token = [], ""
    while True:
        page = await stack.sessions.ListSessions(pb.ListSessionsRequest(page_size=2, page_token=token))
        seen += [session.name for session in page.sessions]
        token = page.next_page_token
        if not token:
            break
    assert seen == names[::-1]
    first = await stack.sessions.ListSessions(pb.ListSessionsRequest(page_size=2))
    wrong = pb.ListSessionsRequest(page_size=2, page_token=first.next_page_token, show_deleted=True)
    for request in (wrong, pb.ListSessionsRequest(page_token="nonsense")):
        assert (await refused(stack.sessions.ListSessions(request))).field == "page_token"  # type: ignore[attr-defined]
    missing = await refused(stack.sessions.GetSession(pb.GetSessionRequest(name="sessions/none")))
    assert missing.reason == "SESSION_NOT_FOUND"


async def test_a_benchmark_runs_its_cases_and_labels_join_verdicts(stack: Stack) -> None:
    await stack.start()
    template = reward_session(
        reward_source=GOOD, judge_source=JUDGE, seeds=1, steps_per_member=100, max_iterations=1, model="template/v1"
    )
    cases = [benchmark_api.BenchmarkCase(intent=i, environment="environments/Hopper-v5") for i in ("hop", "jump")]
    request = benchmark_api.CreateBenchmarkRequest(cases=cases, template=template, request_id="b")
    created = await stack.benchmarks.CreateBenchmark(request)
    assert (await stack.benchmarks.CreateBenchmark(request)).name == created.name
    last = created
    async for answer in stack.benchmarks.WatchBenchmark(
        benchmark_api.WatchBenchmarkRequest(name=created.name), timeout=60
    ):
        last = answer.benchmark
    assert (last.completed, last.passed) == (2, 2) and last.cases[0].score == pytest.approx(0.9)

    request = pb.ListAssignmentsRequest(parent=f"{last.cases[0].session}/iterations/1")
    listed = (await stack.sessions.ListAssignments(request)).assignments
    rollout = listed[0].members[0].evaluations[0].rollouts[0].artifact
    for score, request_id in ((1.0, "a"), (1.0, "a"), (0.5, "b")):
        ask = pb.LabelRolloutRequest(rollout=rollout, score=score, request_id=request_id)
        labelled = (await stack.sessions.LabelRollout(ask)).judgment
    person = [verdict for verdict in labelled.verdicts if verdict.kind == v1.JUDGE_KIND_HUMAN]
    assert len(person) == 1 and person[0].votes == 2 and person[0].score == pytest.approx(0.75)

    rollouts = {entry.artifact: entry.video for entry in listed[0].members[0].evaluations[0].rollouts}
    without = next(key for key, video in rollouts.items() if not video)
    for _ in range(2):
        film = await stack.artifacts.GetRolloutVideo(artifact_api.GetRolloutVideoRequest(rollout=without))
    member = (await stack.sessions.ListAssignments(request)).assignments[0].members[0]
    recorded = {entry.artifact: entry.video for entry in member.evaluations[0].rollouts}
    assert recorded == {**rollouts, without: film.key}
    watched = pb.WatchSessionRequest(name=last.cases[0].session)
    seen = [answer.event async for answer in stack.sessions.WatchSession(watched, timeout=30)]
    films = [event.artifact_written.artifact for event in seen if event.artifact_written.kind == "video"]
    assert films.count(film.key) == 1 and len(films) == 2


async def test_work_accepts_only_the_newest_attempt_and_its_keys(stack: Stack) -> None:
    await stack.start()
    session_spec = spec(reward_source="# good # slow\n", judge_source=JUDGE, max_iterations=1, model="template/v1")
    await stack.sessions.CreateSession(pb.CreateSessionRequest(spec=session_spec, session_id="fence"))
    name, assignment = "sessions/fence/runs/r1", "sessions/fence/iterations/1/assignments/train"
    async with asyncio.timeout(30):
        while True:
            runs = await stack.sessions.ListRuns(pb.ListRunsRequest(parent="sessions/fence"))
            if runs.runs and runs.runs[0].state == v1.RUN_STATE_RUNNING:
                break
            await asyncio.sleep(0.1)
    tokens = RunTokens(load_or_create_secret(stack.folder))
    stub: Any = run_service_pb2_grpc.RunServiceStub(stack.channel)
    expiry = int(time.time()) + 60

    async def say(attempt: int, token: str, *more: work.WorkRequest) -> list[work.WorkResponse]:
        call = stub.Work(timeout=10)
        await call.write(work.WorkRequest(hello=work.Hello(run=name, attempt=attempt, token=token)))
        heard = []
        for request in (None, *more):
            if request is not None:
                await call.write(request)
            while True:
                answer = await call.read()
                heard.append(answer)
                if request is None or answer.WhichOneof("message") != "assignment":
                    break
        call.cancel()
        return heard

    for attempt, token in ((2, tokens.make(name, 1, expiry=expiry)), (1, "1.2"), (1, tokens.make(name, 1, expiry=1))):
        with pytest.raises(grpc.aio.AioRpcError) as wrong:
            await say(attempt, token)
        assert code(wrong.value) == "UNAUTHENTICATED"
    transfer = work.TransferRequest(
        id=7,
        assignment=1,
        put=["members/a/policy/w"],
        put_bytes=[3],
        get=["checkpoints/5.safetensors", "sessions/fence/iterations/1/reward.py"],
    )
    good = await say(1, tokens.make(name, 1, expiry=expiry), work.WorkRequest(transfer_request=transfer))
    grants = good[-1].transfer_grants
    assert grants.id == 7 and not grants.error and len(grants.grants) == 3
    assert grants.grants[0].url.endswith(f"{assignment}/members/a/policy/w")
    for bad in (
        work.TransferRequest(id=1, assignment=1, put=["../../judge.py"], put_bytes=[1]),
        work.TransferRequest(id=1, assignment=1, put=["/etc/passwd"], put_bytes=[1]),
        work.TransferRequest(id=1, assignment=1, get=["sessions/other/iterations/1/reward.py"]),
        work.TransferRequest(id=1, assignment=1, get=["sessions/fence/../other/x"]),
    ):
        heard = await say(1, tokens.make(name, 1, expiry=expiry), work.WorkRequest(transfer_request=bad))
        assert heard[-1].transfer_grants.error and not heard[-1].transfer_grants.grants, bad
    # A checkpoint's report deletes the checkpoints that are older than those in the index.
    keys = {update: f"checkpoints/{update}.safetensors" for update in (1, 2, 5, 6, 7)}
    for key in keys.values():
        stack.store.put(f"{assignment}/{key}", b"x")
    stack.store.put(f"{assignment}/{CHECKPOINT_INDEX}", json.dumps([keys[7], keys[6], keys[5]]).encode())
    output = work.Report(sequence=1000, assignment=1, checkpoint=work.CheckpointReport(key=keys[7], update=7))
    # The answer to what is asked next comes after that.
    await say(
        1,
        tokens.make(name, 1, expiry=expiry),
        work.WorkRequest(report=output),
        work.WorkRequest(transfer_request=transfer),
    )
    kept = {info.key.removeprefix(f"{assignment}/") for info in stack.store.list(f"{assignment}/checkpoints/")}
    assert kept == {keys[5], keys[6], keys[7], CHECKPOINT_INDEX}
    # A launcher may restart an attempt by itself: reports of the newest are accepted, those of the one before are not.
    newer = await say(2, tokens.make(name, 2, expiry=expiry))
    assert newer[0].WhichOneof("message") == "welcome"
    zombie = await say(1, tokens.make(name, 1, expiry=expiry))
    assert zombie[0].stop.reason == "superseded"
    await stack.sessions.CancelSession(pb.CancelSessionRequest(name="sessions/fence"))
    await watch(stack.sessions, "sessions/fence")
