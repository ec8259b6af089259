"""What `run` and `train` check before a session exists, and which commands they suggest after its end."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from dressage import errors
from dressage.api.v1 import session_pb2 as pb
from dressage.api.v1 import session_service_pb2
from dressage.cli import plan, summary
from dressage.cli.main import invoke
from dressage.client import AsyncClient
from dressage.local.connection import Connection
from dressage.sdk import preflight
from dressage.sdk.results import Result
from google.protobuf import duration_pb2

from tests.fakes.orchestrator import Background, FakeOrchestrator, Fault


def estimate(**spec: Any) -> session_service_pb2.EstimateSessionResponse:
    answer = session_service_pb2.EstimateSessionResponse(minutes_per_iteration=1.0)
    answer.spec.intent, answer.spec.environment, answer.spec.model = "hop", "environments/Hopper-v5", "template/v1"
    answer.spec.MergeFrom(pb.SessionSpec(max_iterations=1, **spec))
    return answer


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Background]:
    fake = FakeOrchestrator(estimate=estimate(), ended=pb.Session(state=pb.SESSION_STATE_SUCCEEDED))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DRESSAGE_HOME", str(tmp_path / "home"))
    with Background(fake) as running:
        monkeypatch.setenv("DRESSAGE_ADDRESS", running.address)
        yield running


def test_an_intent_that_the_author_declines_leaves_no_session(
    server: Background, capsys: pytest.CaptureFixture[str]
) -> None:
    import grpc

    server.fake.fail_next("Elicit", Fault(grpc.StatusCode.FAILED_PRECONDITION, "it does not understand 'juggle'"))
    assert invoke(["run", "juggle", "--env", "Hopper-v5"]) == 1
    assert "does not understand" in capsys.readouterr().err
    assert server.fake.requests["CreateSession"] == []


def refused(server: Background, call: str, message: str) -> None:
    import grpc

    field, _, text = message.partition(": ")
    server.fake.fail_next(call, Fault(grpc.StatusCode.INVALID_ARGUMENT, message, violations=((field, text),)))


def test_a_refused_option_is_named_as_the_command_line_names_it(
    server: Background, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    refused(server, "EstimateSession", "spec.pool: invalid value (got 'x'); expected one of local")
    assert invoke(["run", "hop", "--env", "Hopper-v5", "--pool", "x"]) == 1
    assert capsys.readouterr().err == "error: --pool: invalid value (got 'x'); expected one of local\n"
    file = tmp_path / "hop.yaml"
    file.write_text("intent: hop\nenvironment: environments/Hopper-v5\npool: x\n")
    for options, name in (([], "hop.yaml pool"), (["--pool", "x"], "--pool")):
        refused(server, "EstimateSession", "spec.pool: invalid value (got 'x'); expected one of local")
        assert invoke(["run", "-f", str(file), *options]) == 1
        assert capsys.readouterr().err.startswith(f"error: {name}: invalid value")
    refused(server, "SteerSession", "rebase_to: invalid value (got 9); expected a judged iteration of the session: 1")
    assert invoke(["sessions", "steer", "s1", "--rebase-to", "9"]) == 1
    assert capsys.readouterr().err.startswith("error: --rebase-to: invalid value (got 9)")


@pytest.mark.parametrize(
    ("spec", "written"),
    [
        (pb.SessionSpec(model="template/v1"), True),
        (pb.SessionSpec(model="openai/m"), False),
        (pb.SessionSpec(model="template/v1", judge_source="j", reward=pb.RewardSpec(reward_source="r")), False),
        (pb.SessionSpec(model="template/v1", reward=pb.RewardSpec(reward_source="r")), True),
        (pb.SessionSpec(model="template/v1", reward=pb.RewardSpec(reward_source="r", train_only=True)), False),
    ],
)
def test_the_intent_is_read_only_where_the_built_in_author_writes(spec: pb.SessionSpec, written: bool) -> None:
    assert preflight._template_writes(spec, "reward") == written
    assert not preflight._template_writes(spec, "parameters")


async def test_a_backend_without_its_packages_is_refused_in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preflight, "has_sb3", lambda: False)
    fake = FakeOrchestrator(estimate=estimate(reward=pb.RewardSpec(backend="sb3")))
    with Background(fake) as running:
        async with AsyncClient.connect(running.address) as client:
            with pytest.raises(errors.FailedPrecondition, match="the backend sb3 needs torch"):
                await preflight.check(pb.SessionSpec(), Connection(client, "stack", None))
            await preflight.check(pb.SessionSpec(), Connection(client, "remote", None))


def test_a_session_of_over_an_hour_asks_first() -> None:
    questions: list[str] = []

    def ask(question: str) -> bool:
        questions.append(question)
        return False

    long = estimate()
    long.minutes_per_iteration = 61
    assert plan.confirm(estimate(), ask=ask) and not questions
    assert not plan.confirm(long, ask=ask) and questions == ["The session may take 1 h 01 min. Start it?"]
    assert plan.confirm(long, ask=None)


async def test_interrupted_sessions_are_named_and_not_continued() -> None:
    fake = FakeOrchestrator()
    for name, state in (("a", pb.SESSION_STATE_RUNNING), ("b", pb.SESSION_STATE_SUCCEEDED)):
        fake.sessions[f"sessions/{name}"] = pb.Session(name=f"sessions/{name}", state=state)
    with Background(fake) as running:
        async with AsyncClient.connect(running.address) as client:
            assert await preflight.interrupted_sessions(Connection(client, "stack", None)) == ["sessions/a"]
            assert await preflight.interrupted_sessions(Connection(client, "joined", None)) == []


OWN_POLICY = pb.SessionSpec(model="template/v1", code=pb.CodeSpec(policy_source="class Policy: …"))
DOLLARS = pb.SessionSpec(budget=pb.Budget(dollars=0.5))
MINUTES = pb.SessionSpec(budget=pb.Budget(wall_time=duration_pb2.Duration(seconds=90)))


def exhausted(reason: str, **session: Any) -> pb.Session:
    code = pb.ExhaustionReason.Value(f"EXHAUSTION_REASON_{reason}")
    return pb.Session(state=pb.SESSION_STATE_EXHAUSTED, exhaustion_reason=code, **session)


def failed(reason: str, **session: Any) -> pb.Session:
    return pb.Session(state=pb.SESSION_STATE_FAILED, failure=pb.Failure(reason=reason), **session)


@pytest.mark.parametrize(
    ("session", "options"),
    [
        (exhausted("ITERATIONS"), [" --iterations 1"]),
        (exhausted("NO_PROPOSAL"), []),
        (exhausted("ITERATIONS", spec=pb.SessionSpec(reward=pb.RewardSpec(train_only=True))), []),
        (exhausted("DOLLARS", spec=DOLLARS), [" --budget-dollars 1"]),
        (exhausted("WALL_TIME", spec=MINUTES), [" --budget-minutes 3"]),
        (failed("TEMPLATE_UNKNOWN_INTENT"), []),
        (failed("LLM_UNAVAILABLE"), [""]),
        (failed("NO_POLICY", spec=pb.SessionSpec(model="openai/m")), [""]),
        (failed("NO_POLICY", spec=OWN_POLICY), []),
        (failed("PACK_NOT_INSTALLED", spec=OWN_POLICY), [""]),
        (exhausted("ITERATIONS", spec=OWN_POLICY), []),
        (pb.Session(state=pb.SESSION_STATE_CANCELLED), [""]),
        (pb.Session(state=pb.SESSION_STATE_CANCELLED, spec=pb.SessionSpec(model="recorded/pole")), []),
        (pb.Session(state=pb.SESSION_STATE_SUCCEEDED), []),
    ],
)
def test_resume_is_suggested_only_where_it_can_change_something(session: pb.Session, options: list[str]) -> None:
    assert summary._resume(Result(session, Connection(None, "remote", None))) == options  # type: ignore[arg-type]
