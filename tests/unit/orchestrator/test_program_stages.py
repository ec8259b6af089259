"""Records of a search in stages: each stage once, and a stage that was cut off once more when it is complete."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from dressage.api.v1 import session_pb2 as v1
from dressage_orchestrator.methods.program import METHOD
from dressage_orchestrator.methods.program.searching import ProgramSearch
from dressage_orchestrator.methods.program.session import Programs
from dressage_orchestrator.service import with_defaults


class Store:
    """The rows that a stage changes."""

    def __init__(self) -> None:
        self.row, self.counted = v1.Iteration(number=1), 0

    def iteration(self, number: int) -> v1.Iteration:
        copy = v1.Iteration()
        copy.CopyFrom(self.row)
        return copy

    def update_iteration(self, number: int, changes: v1.Iteration, paths: Any) -> v1.Iteration:
        self.row.CopyFrom(changes)
        return self.row

    def set_best(self, *_: Any, **__: Any) -> None: ...

    def count_candidates(self, *, candidates: int, **_: Any) -> bool:
        self.counted += candidates
        return True


@pytest.fixture
def search() -> ProgramSearch:
    spec = v1.SessionSpec(intent="x", environment="environments/karel/DoorKey")
    spec.program.SetInParent()
    full = with_defaults(spec, METHOD, default_model="template/v1", default_pool="local")
    context: Any = SimpleNamespace(
        spec=full, environment="karel/DoorKey", store=Store(), put_text=lambda *_: None, put_json=lambda *_: None
    )
    return ProgramSearch(context)


def result(evaluated: int, score: float, program: str, *improvements: tuple[int, float]) -> v1.SearchResult:
    message = v1.SearchResult(evaluated=evaluated, best_score=score, best_program=program)
    for number, value in improvements:
        message.improvements.add(evaluated=number, score=value)
    return message


def test_stages_add_up_and_are_recorded_once(search: ProgramSearch) -> None:
    first, second = result(100, 1.0, "a", (1, 0.5), (100, 1.0)), result(50, 0.7, "b", (30, 0.7))
    for _ in range(2):  # a resumed workflow records again
        state = search._record_stage(1, first, 0)
        assert state["latest"] == {"program": "a", "chosen": 1, "score": 1.0} and state["reached"]
        state = search._record_stage(1, second, 100)
        assert state["evaluated"] == 150 and state["latest"]["program"] == "b" and not state["reached"]
        assert state["outcome"] == {"program": "a", "chosen": 1, "score": 1.0}
    store: Any = search._context.store
    assert store.counted == store.row.program.search.evaluated == 150
    assert [one.evaluated for one in store.row.program.search.improvements] == [1, 100]


def test_a_stage_that_was_cut_off_is_completed(search: ProgramSearch) -> None:
    cut, whole = result(20, 0.5, "a", (20, 0.5)), result(100, 0.75, "b", (20, 0.5), (70, 0.75))
    assert search._record_stage(1, cut, 0)["latest"]["program"] == "a"
    state = search._record_stage(1, whole, 0)
    # Another number: the report of the first one was played with its own.
    assert state["latest"] == {"program": "b", "chosen": 2, "score": 0.75} and state["outcome"]["program"] == "b"
    store: Any = search._context.store
    assert store.counted == store.row.program.search.evaluated == 100
    assert [one.evaluated for one in store.row.program.search.improvements] == [20, 70]


@pytest.mark.parametrize(("confirmed", "stages"), [(30, 30), (1000, 100)])
def test_a_search_goes_on_after_many_refuted_programs(
    search: ProgramSearch, monkeypatch: pytest.MonkeyPatch, confirmed: int, stages: int
) -> None:
    played: list[int] = []

    def stage(_: int, number: int, used: int, starts: list[str]) -> dict[str, Any]:
        outcome = {"program": f"program {number}", "chosen": number, "score": 1.0}
        return {"evaluated": used + 700, "reached": True, "latest": outcome, "outcome": outcome}

    def confirm(_: int, outcome: Any) -> bool:
        played.append(outcome.chosen)
        return bool(outcome.chosen == confirmed)

    monkeypatch.setattr(search, "_stage", stage)
    monkeypatch.setattr(search, "_is_confirmed", confirm)
    evaluated = search.evaluate(1, Programs("", programs=()))
    assert played == list(range(1, stages + 1)) and evaluated.passed == (confirmed <= stages)
