"""The report at the end of a search: its seeds, and its wait when the wall-clock budget is exhausted."""

from __future__ import annotations

from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest
from dressage.api.v1 import session_pb2 as v1
from dressage_orchestrator.lifecycle import assignments
from dressage_orchestrator.lifecycle.outcome import Exhausted
from dressage_orchestrator.lifecycle.report import report_seeds, search_seeds
from hypothesis import given
from hypothesis import strategies as st

NAME = "sessions/s/iterations/1/assignments/report-1"
PATIENCE = 5.0


@given(st.integers(0, 40), st.integers(0, 40), st.integers(0, 400), st.integers(0, 400), st.integers(1, 20))
def test_episodes_of_runs_and_rounds_are_others(seed: int, other: int, block: int, next_block: int, episodes: int):
    first = set(search_seeds(v1.SessionSpec(seed=seed), episodes, block=block))
    second = set(search_seeds(v1.SessionSpec(seed=other), episodes, block=next_block))
    assert len(first) == episodes
    assert first == second if (seed, block) == (other, next_block) else not first & second
    assert not first & set(report_seeds(10_000))


class Context:
    """A session whose wall-clock budget is exhausted, and an assignment that ends at the third look."""

    def __init__(self) -> None:
        self.waits, self.ensured, self.looks = [], 0, 0
        self.session, session = "s", v1.Session()
        session.start_time.FromSeconds(0)
        session.spec.budget.wall_time.FromSeconds(1)
        now = datetime.fromtimestamp(1_000, UTC)
        self.spec = session.spec
        self.store = SimpleNamespace(
            get=lambda: session,
            now=lambda: now,
            assignment=self._assignment,
            count_env_steps=int,
            together=lambda work: work(),
            mark=lambda key: False,
        )
        controller = SimpleNamespace(ensure=self._ensure, cancel_assignment=lambda name: None)
        self.engine = SimpleNamespace(settings=SimpleNamespace(wait_seconds=PATIENCE), controller=controller)

    def _assignment(self, name: str) -> Any:
        self.looks += 1
        return SimpleNamespace(name=name, ended=self.looks >= 3, assignment=v1.Assignment(name=name))

    def _ensure(self, session: str) -> None:
        self.ensured += 1

    def step(self, name: str, work: Any) -> Any:
        return work()

    def call(self, work: Any) -> Any:
        return work

    def wait(self, seconds: float) -> None:
        self.waits.append(seconds)


def test_the_report_waits_for_its_trainer_after_the_budget() -> None:
    context: Any = Context()
    assert assignments.wait(context, NAME, within_wall_time=False).ended
    assert context.ensured == 1, "a lost trainer is started again"
    assert set(context.waits) == {PATIENCE}, "it does not poll at the deadline's pace"


def test_other_waits_end_with_the_budget() -> None:
    context: Any = Context()
    with pytest.raises(Exhausted):
        assignments.wait(context, NAME)
    assert context.ensured == 0


@pytest.mark.parametrize("looks", [0, 1, 2])
def test_an_assignment_may_end_between_the_two_reads_of_a_poll(looks: int) -> None:
    context: Any = Context()
    context.spec.budget.Clear()
    context.is_replay, context.looks = True, looks
    assert assignments.finish(context, NAME, "report", lambda row: {"ended": row.ended}) == {"ended": True}
