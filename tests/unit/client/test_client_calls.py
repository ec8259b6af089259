"""The client against a fake server on real gRPC: retries, deadlines, errors, pages, watching."""

from __future__ import annotations

import grpc
import pytest
from dressage import errors
from dressage.api.v1 import benchmark_service_pb2, event_pb2, session_pb2
from dressage.client import AsyncClient, CallPolicy, Client
from hypothesis import given
from hypothesis import strategies as st

from tests.fakes.orchestrator import FakeOrchestrator, Fault, serving

SPEC = session_pb2.SessionSpec(intent="run forward", environment="environments/HalfCheetah-v5")
FAST = CallPolicy(attempt_seconds=0.5, total_seconds=3, initial_backoff=0.01, max_backoff=0.02, watch_reconnects=3)


def events(count: int) -> list[event_pb2.Event]:
    return [event_pb2.Event(iteration=1, sequence=number) for number in range(1, count + 1)]


def ended(state: int = session_pb2.SESSION_STATE_SUCCEEDED) -> session_pb2.Session:
    return session_pb2.Session(state=state)


async def test_a_retried_write_keeps_its_request_id():
    fake = FakeOrchestrator()
    fake.fail_next("CreateSession", *[Fault(grpc.StatusCode.UNAVAILABLE)] * 3)
    async with serving(fake) as address, AsyncClient.connect(address, policy=FAST) as client:
        await client.create_session(SPEC)
        await client.create_session(SPEC)
    identifiers = [request.request_id for request in fake.requests["CreateSession"]]
    assert len(identifiers) == 5
    assert len(set(identifiers[:4])) == 1 and identifiers[0]
    assert identifiers[4] != identifiers[0]


async def test_an_attempt_that_hangs_is_given_up_and_repeated():
    fake = FakeOrchestrator()
    fake.fail_next("CreateSession", Fault(grpc.StatusCode.UNAVAILABLE, hang_seconds=30))
    async with serving(fake) as address, AsyncClient.connect(address, policy=FAST) as client:
        session = await client.create_session(SPEC)
    assert session.name == "sessions/s1"
    assert len(fake.requests["CreateSession"]) == 2


async def test_a_delete_that_hangs_is_not_repeated():
    fake = FakeOrchestrator(sessions={"sessions/a": session_pb2.Session(name="sessions/a")})
    fake.fail_next("DeleteSession", Fault(grpc.StatusCode.UNAVAILABLE, hang_seconds=30))
    async with serving(fake) as address, AsyncClient.connect(address, policy=FAST) as client:
        with pytest.raises(errors.DeadlineExceeded):
            await client.delete_session("a")
    assert len(fake.requests["DeleteSession"]) == 1


async def test_the_total_deadline_bounds_the_retries():
    fake = FakeOrchestrator()
    fake.fail_next("GetSession", *[Fault(grpc.StatusCode.UNAVAILABLE)] * 1000)
    policy = CallPolicy(attempt_seconds=0.5, total_seconds=0.3, initial_backoff=0.01, max_backoff=0.02)
    async with serving(fake) as address, AsyncClient.connect(address, policy=policy) as client:
        with pytest.raises(errors.Unavailable):
            await client.get_session("a")
    assert 5 < len(fake.requests["GetSession"]) < 200


async def test_nobody_at_the_address_is_said_plainly():
    async with AsyncClient.connect("127.0.0.1:9", policy=CallPolicy(total_seconds=0.3, max_backoff=0.1)) as client:
        with pytest.raises(errors.Unavailable, match=r"no answer from 127\.0\.0\.1:9.*dressage serve"):
            await client.get_session("a")


async def test_reason_and_fields_come_back():
    fake = FakeOrchestrator()
    fault = Fault(
        grpc.StatusCode.INVALID_ARGUMENT, "invalid request", "STEPS_NEGATIVE", (("spec.seeds", "must be at least 0"),)
    )
    fake.fail_next("CreateSession", fault)
    async with serving(fake) as address, AsyncClient.connect(address, policy=FAST) as client:
        with pytest.raises(errors.InvalidArgument, match=r"spec\.seeds: must be at least 0") as caught:
            await client.create_session(SPEC)
        with pytest.raises(errors.NotFound) as missing:
            await client.get_session("nothing")
    assert caught.value.reason == "STEPS_NEGATIVE"
    assert caught.value.field == "spec.seeds"
    assert missing.value.reason == "SESSION_NOT_FOUND"
    assert len(fake.requests["CreateSession"]) == 1, "a bad request is never repeated"


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (grpc.StatusCode.ALREADY_EXISTS, errors.AlreadyExists),
        (grpc.StatusCode.FAILED_PRECONDITION, errors.FailedPrecondition),
        (grpc.StatusCode.ABORTED, errors.Aborted),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, errors.ResourceExhausted),
        (grpc.StatusCode.PERMISSION_DENIED, errors.PermissionDenied),
        (grpc.StatusCode.UNAUTHENTICATED, errors.Unauthenticated),
        (grpc.StatusCode.INTERNAL, errors.Internal),
        (grpc.StatusCode.UNKNOWN, errors.Internal),
    ],
)
async def test_codes_become_domain_errors(code: grpc.StatusCode, kind: type[errors.DressageError]):
    fake = FakeOrchestrator()
    fake.fail_next("GetSession", Fault(code, "because"))
    async with serving(fake) as address, AsyncClient.connect(address, policy=FAST) as client:
        with pytest.raises(kind, match="because"):
            await client.get_session("a")


async def test_the_token_goes_with_every_call():
    fake = FakeOrchestrator(sessions={"sessions/a": ended()}, events={"sessions/a": events(1)})
    async with (
        serving(fake) as address,
        AsyncClient.connect(None, None, environ={"DRESSAGE_ADDRESS": address, "DRESSAGE_TOKEN": "t"}) as client,
    ):
        await client.get_session("a")
        async for _ in client.watch_session("a"):
            pass
    assert fake.metadata["GetSession"][0]["authorization"] == "Bearer t"
    assert fake.metadata["WatchSession"][0]["authorization"] == "Bearer t"


async def test_a_watch_goes_on_after_lost_connections_without_gap_or_repeat():
    fake = FakeOrchestrator(script=events(9), ended=ended())
    fake.fail_next(
        "WatchSession",
        Fault(grpc.StatusCode.UNAVAILABLE, after_events=4),
        Fault(grpc.StatusCode.UNAVAILABLE),
        Fault(grpc.StatusCode.UNAVAILABLE, after_events=3),
    )
    async with serving(fake) as address, AsyncClient.connect(address, policy=FAST) as client:
        session = await client.create_session(SPEC)
        seen = [response.event.sequence async for response in client.watch_session(session.name)]
    assert seen == list(range(1, 10))
    assert [request.resume_token for request in fake.requests["WatchSession"]] == ["", "4", "4", "7"]


async def test_events_that_a_server_repeats_are_not_passed_on():
    fake = FakeOrchestrator(script=events(6), ended=ended(), repeated_events=2)
    fake.fail_next("WatchSession", Fault(grpc.StatusCode.UNAVAILABLE, after_events=4))
    async with serving(fake) as address, AsyncClient.connect(address, policy=FAST) as client:
        session = await client.create_session(SPEC)
        seen = [response.event.sequence async for response in client.watch_session(session.name)]
    assert seen == [1, 2, 3, 4, 5, 6]


async def test_a_watch_gives_up_on_a_server_that_stays_away():
    fake = FakeOrchestrator(sessions={"sessions/a": session_pb2.Session(name="sessions/a")})
    fake.fail_next("WatchSession", *[Fault(grpc.StatusCode.UNAVAILABLE)] * 50)
    async with serving(fake) as address, AsyncClient.connect(address, policy=FAST) as client:
        with pytest.raises(errors.Unavailable):
            async for _ in client.watch_session("a"):
                pass
    assert len(fake.requests["WatchSession"]) == FAST.watch_reconnects + 1


async def test_a_stream_that_ends_early_is_opened_again_but_not_for_ever():
    running = session_pb2.Session(name="sessions/a", state=session_pb2.SESSION_STATE_RUNNING)
    fake = FakeOrchestrator(sessions={"sessions/a": running}, events={"sessions/a": events(2)})
    async with serving(fake) as address, AsyncClient.connect(address, policy=FAST) as client:
        watching = client.watch_session("a")
        assert [(await anext(watching)).event.sequence for _ in range(2)] == [1, 2]
        with pytest.raises(errors.Unavailable, match="has not ended"):
            await anext(watching)
    assert len(fake.requests["WatchSession"]) == FAST.watch_reconnects + 2


async def test_watching_an_unknown_session_is_an_error_at_once():
    fake = FakeOrchestrator()
    async with serving(fake) as address, AsyncClient.connect(address, policy=FAST) as client:
        with pytest.raises(errors.NotFound):
            async for _ in client.watch_session("nothing"):
                pass
    assert len(fake.requests["WatchSession"]) == 1


async def test_lists_fetch_page_after_page_as_they_are_consumed():
    names = [f"sessions/s{number}" for number in range(5)]
    fake = FakeOrchestrator(sessions={name: session_pb2.Session(name=name) for name in names})
    async with serving(fake) as address, AsyncClient.connect(address, policy=FAST) as client:
        listing = client.list_sessions()
        assert (await anext(listing)).name == names[0]
        assert len(fake.requests["ListSessions"]) == 1
        assert [session.name async for session in listing] == names[1:]
    assert len(fake.requests["ListSessions"]) == 3


def test_no_server_and_no_address_is_said(tmp_path):
    with pytest.raises(errors.FailedPrecondition, match="DRESSAGE_ADDRESS"):
        Client.connect(environ={"DRESSAGE_HOME": str(tmp_path)})


@pytest.mark.parametrize("address", ["", "localhost", "ftp://a:1", "a:99999", "a:0", "a:b", "a/b:1"])
def test_a_malformed_address_names_itself(address: str):
    if address:
        with pytest.raises(errors.InvalidArgument, match="address"):
            Client.connect(address)


@given(failures=st.integers(1, 60), jitter=st.floats(0, 1))
def test_backoff_stays_in_its_bounds(failures: int, jitter: float):
    policy = CallPolicy()
    assert policy.initial_backoff / 2 <= policy.backoff(failures, jitter) <= policy.max_backoff


async def test_benchmarks_are_created_and_watched():
    fake = FakeOrchestrator()
    async with serving(fake) as address, AsyncClient.connect(address, policy=FAST) as client:
        case = benchmark_service_pb2.BenchmarkCase(intent="hop", environment="environments/Hopper-v5")
        benchmark = await client.create_benchmark([case])
        assert [state.completed async for state in client.watch_benchmark(benchmark.name)] == [0, 1, 2]
    assert fake.requests["CreateBenchmark"][0].request_id
