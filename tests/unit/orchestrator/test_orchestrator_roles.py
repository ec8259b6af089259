"""Models of single roles, and waits for a provider that is down."""

from __future__ import annotations

import asyncio

import pytest
from dressage.api.internal.v1 import agent_service_pb2 as agent_pb
from dressage.api.v1 import session_pb2 as v1
from dressage.errors import DressageError, FailedPrecondition, Internal, InvalidArgument, ResourceExhausted, Unavailable
from dressage.sdk.arguments import by_role
from dressage.serving.costs import attach_cost, cost_of
from dressage_orchestrator import models
from dressage_orchestrator.lifecycle.outages import Wait, through_outages, with_cost_of_all

from tests.fakes.options import spec_of


def options(**more):
    return spec_of(intent="run", env="Hopper-v5", **more)


def chosen(spec, role):
    entry = models.model_of(spec, role)
    return entry.model, entry.thinking, entry.api_base


def test_the_role_decides_then_its_group_then_the_session():
    spec = options(
        model=["openai/a", "judge=anthropic/b", "video=gemini/c", "synthesiser=openai/d"],
        thinking=["low", "judge=max", "reviser=high"],
        api_base=["http://general", "video=http://v"],
    )
    assert chosen(spec, "reward_author") == ("openai/a", "low", "")
    assert chosen(spec, "reviser") == ("openai/a", "high", "")
    assert chosen(spec, "judge_author") == ("anthropic/b", "max", "")
    assert chosen(spec, "video_judge") == chosen(spec, "video") == ("gemini/c", "low", "http://v")
    assert chosen(spec, "code_reviewer") == ("openai/a", "low", "")
    assert [(e.model, e.api_base) for e in models.models_of(options(model=["a", "judge=b", "reviser=b"]))] == [
        ("a", ""),
        ("b", ""),
    ]


@pytest.mark.parametrize("values", [["a", "b"], ["judge=a", "judge=b"], ["judge="]])
def test_two_values_for_a_role_are_refused(values):
    with pytest.raises(InvalidArgument, match="--model"):
        by_role("--model", values)


def test_an_unknown_role_is_refused_with_those_that_exist():
    models.check(options(model=["a", "judge=b", "video=c", "reviser=d"]))
    for name in ("video_judge", "jugde"):
        with pytest.raises(InvalidArgument, match="judge, judge_author"):
            models.check(options(model=["a", f"{name}=b"]))


class Provider:
    """Fails as often as given, with a cost each, then answers."""

    def __init__(self, *errors: DressageError) -> None:
        self.errors, self.pauses, self.reports = list(errors), [], []

    async def call(self) -> agent_pb.TaskResult:
        if self.errors:
            error = self.errors.pop(0)
            attach_cost(error, v1.Cost(requests=1, dollars=0.01))
            raise error
        return agent_pb.TaskResult(model="m", cost=v1.Cost(requests=1, dollars=0.02))

    async def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)

    async def report(self, error: DressageError, wait: Wait) -> None:
        self.reports.append((error.reason, wait.pause, wait.seconds_left))

    def run(self, seconds: float, *, queue_seconds: float = 0.0) -> agent_pb.TaskResult:
        call = with_cost_of_all(self.call)
        waits = through_outages(
            call, seconds=seconds, queue_seconds=queue_seconds, report=self.report, sleep=self.sleep
        )
        return asyncio.run(waits)


@pytest.mark.parametrize("model", ["oobabooga/http://10.0.0.1", "huggingface/https://x", "a//b", "judge=a/http://x"])
def test_a_model_name_with_an_address_is_refused(model):
    values = [model] if "=" not in model else ["a", model]
    with pytest.raises(InvalidArgument, match="without an address") as refused:
        models.check(options(model=values))
    assert refused.value.message.startswith("spec.roles" if "=" in model else "spec.model")


def down(count: int) -> list[DressageError]:
    return [Unavailable("down", reason="LLM_UNAVAILABLE") for _ in range(count)]


def test_an_outage_is_waited_for_visibly_and_all_attempts_cost():
    provider = Provider(*down(7), ResourceExhausted("slow down", reason="LLM_RATE_LIMITED"))
    result = provider.run(3600.0)
    assert provider.pauses == [10, 20, 40, 80, 160, 300, 300, 300]
    assert [pause for _, pause, _ in provider.reports] == provider.pauses
    assert provider.reports[0][2] == 3590 and provider.reports[-1][0] == "LLM_RATE_LIMITED"
    assert result.cost.requests == 9 and result.cost.dollars == pytest.approx(0.1)


def test_the_wait_ends_with_the_last_error_and_its_cost():
    provider = Provider(*down(20))
    with pytest.raises(Unavailable) as error:
        provider.run(100.0)
    assert sum(provider.pauses) == 100 and len(provider.errors) == 20 - len(provider.pauses) - 1
    assert cost_of(error.value).requests == len(provider.pauses) + 1


def test_other_errors_are_not_waited_for():
    provider = Provider(FailedPrecondition("no", reason="LLM_REPLY_UNUSABLE"))
    with pytest.raises(FailedPrecondition):
        provider.run(100.0)
    assert not provider.pauses


@pytest.mark.parametrize("reason", ["LLM_AGENT_BUSY", "SANDBOX_QUEUE_FULL", "SANDBOX_TIMEOUT", "MACHINE_OVERLOADED"])
def test_a_place_is_waited_for_longer_than_an_outage(reason):
    provider = Provider(*[ResourceExhausted("64 tasks are running", reason=reason) for _ in range(100)], *down(2))
    provider.run(60.0, queue_seconds=3600.0)
    assert len(provider.pauses) == 102 and max(provider.pauses[:100]) == 30 and provider.pauses[100:] == [10, 20]
    busy = Provider(*[ResourceExhausted("64 tasks are running", reason=reason) for _ in range(100)])
    with pytest.raises(ResourceExhausted):
        busy.run(3600.0, queue_seconds=120.0)
    assert sum(busy.pauses) == 120


def test_a_service_that_stops_or_is_away_is_an_outage():
    provider = Provider(Internal("the server stopped", reason="CANCELLED"), Unavailable("no answer"))
    provider.run(60.0)
    assert [reason for reason, *_ in provider.reports] == ["CANCELLED", Unavailable.default_reason]
