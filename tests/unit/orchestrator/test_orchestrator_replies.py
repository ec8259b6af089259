"""Replies that fail for an internal error are repeated; no error of a server that stops is taken for a reply's."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from dressage.api.internal.v1 import agent_service_pb2 as agent_pb
from dressage.errors import DressageError, FailedPrecondition, Internal, Unavailable
from dressage_orchestrator.lifecycle import conversations as module
from dressage_orchestrator.lifecycle.context import SessionContext
from dressage_orchestrator.lifecycle.outcome import Interrupted
from dressage_orchestrator.lifecycle.wakeups import Wakeups
from dressage_orchestrator.methods.program import seeding

Answer = agent_pb.TaskResult | DressageError


class Model:
    """Answers each task by its key: the errors planned for it first, then the key itself as the model."""

    def __init__(self, plan: dict[str, list[DressageError]]) -> None:
        self.plan, self.requests = plan, list[str]()

    def converse_each(self, _: Any, __: int, tasks: Sequence[agent_pb.Task]) -> list[Answer]:
        self.requests += [task.key for task in tasks]
        return [self.plan[t.key].pop(0) if self.plan.get(t.key) else agent_pb.TaskResult(model=t.key) for t in tasks]


def answered(monkeypatch: pytest.MonkeyPatch, plan: dict[str, list[DressageError]]) -> tuple[list[str], list[str]]:
    model: Any = Model(plan)
    monkeypatch.setattr(module, "converse_each", model.converse_each)
    context: Any = None
    answers = module.replies(context, 1, [agent_pb.Task(key=key) for key in "abcd"])
    return [getattr(one, "model", "") or getattr(one, "reason", "") for one in answers], model.requests


def test_replies_that_an_internal_error_lost_are_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    plan: dict[str, list[DressageError]] = {"b": [Internal("cut")], "d": [Internal("cut"), Internal("cut")]}
    assert answered(monkeypatch, plan) == (["a", "b", "c", "d"], [*"abcd", *"bd", "d"])


def test_a_reply_s_own_error_and_a_lasting_one_are_its_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    plan: dict[str, list[DressageError]] = {
        "a": [FailedPrecondition("x", reason="LLM_REPLY_UNUSABLE")],
        "b": [Unavailable("x", reason="GONE")],
        "c": [Internal("x", reason="WORSE")] * 5,
    }
    expected = ["LLM_REPLY_UNUSABLE", "GONE", "WORSE", "d"]
    assert answered(monkeypatch, plan) == (expected, [*"abcd", "c", "c"])
    assert [
        module.is_lost(error) for error in (FailedPrecondition("x", reason="NO_RECORDED_PROGRAMS"), Internal("x"))
    ] == [
        False,
        True,
    ]


def test_lost_replies_are_a_warning_of_the_session(monkeypatch: pytest.MonkeyPatch) -> None:
    result = agent_pb.TaskResult(model="m", programs=agent_pb.Programs(programs=["DEF run m( move m)"]))
    answers: list[Answer] = [Unavailable("gone"), result, FailedPrecondition("no", reason="LLM_REPLY_UNUSABLE")]
    monkeypatch.setattr(seeding, "replies", lambda *_: answers)
    monkeypatch.setattr(seeding, "key_of", lambda _, path: path)
    monkeypatch.setattr(seeding.spec, "task_of", lambda _: seeding_task())
    warnings: list[tuple[str, str]] = []
    store = SimpleNamespace(emit=lambda *_, **__: None, warn=lambda reason, text, **_: warnings.append((reason, text)))
    program = SimpleNamespace(seed_programs=1, replies=3)
    context: Any = SimpleNamespace(
        spec=SimpleNamespace(program=program, seed=0), store=store, step=lambda _, work: work()
    )
    collected = seeding.collect(context, 1, "program_author", lambda *_: None)
    assert collected.programs == ("DEF run m( move m)",)
    ((reason, text),) = warnings
    assert reason == "REPLIES_LOST" and text.startswith("1 of 3 replies failed") and text.endswith("gone")


def seeding_task() -> Any:
    from dressage.programs.families import program_task

    return program_task("karel/DoorKey")


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    running = asyncio.new_event_loop()
    thread = threading.Thread(target=running.run_forever)
    thread.start()
    yield running
    running.call_soon_threadsafe(running.stop)
    thread.join(10)
    running.close()


def test_results_of_calls_that_end_with_the_server_are_not_recorded(loop: asyncio.AbstractEventLoop) -> None:
    context = object.__new__(SessionContext)
    stopping: Any = threading.Event()
    context.engine = SimpleNamespace(loop=loop, stopping=stopping, wakeups=Wakeups())  # type: ignore[assignment]
    context.session, context._wakeup_state = "s", (0, 0)

    async def lost(stop: bool) -> str:
        await asyncio.sleep(0)
        if stop:
            stopping.set()
        return "errors of the calls"

    assert context.call(lost(False), seconds=10, through_cancel=True) == "errors of the calls"
    with pytest.raises(Interrupted):
        context.call(lost(True), seconds=10, through_cancel=True)


def test_an_event_quotes_the_marked_text_of_a_result() -> None:
    results = agent_pb.TaskResult.DESCRIPTOR.oneofs_by_name["result"].fields
    marked = {
        result.name: [f.name for f in result.message_type.fields if f.GetOptions().Extensions[agent_pb.event_summary]]
        for result in results
        if result.message_type is not None
    }
    assert max(map(len, marked.values())) == 1 and marked["revision"] == ["planned_change"]
    summary = module._summary
    revision = agent_pb.Revision(diagnosis="slow", planned_change=" a larger\nweight\n\nand more", source="x")
    assert summary(agent_pb.TaskResult(revision=revision)) == "a larger weight"
    assert summary(agent_pb.TaskResult(programs=agent_pb.Programs(programs=["DEF run", "DEF other"]))) == "DEF run"
    assert summary(agent_pb.TaskResult(reflection=agent_pb.Reflection(text="a" * 400))) == "a" * 299 + "…"
    assert summary(agent_pb.TaskResult(judge=agent_pb.JudgeProposal(source="x"))) == ""
    assert summary(agent_pb.TaskResult(model="m", cost={"requests": 1})) == ""
