"""Removal needs evidence: neither a lost database nor a clock that was set forward removes anything."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from dressage.api.v1 import maintenance_service_pb2 as pb
from dressage_orchestrator import evidence

from tests.unit.orchestrator.simulated_use import put
from tests.unit.orchestrator.test_orchestrator_retention import POLICY, START, House


def collect(house: House, *, days: float, **more: bool) -> list[pb.CollectGarbageResponse]:
    house.clock.now = START + timedelta(days=days)
    return list(house.retention.collect(**{"validate_only": False, **more}))


def test_a_database_younger_than_its_artifacts_removes_none(tmp_path: Path) -> None:
    house = House(tmp_path)
    for number in range(3):
        put(house.store, f"sessions/lost{number}/iterations/1/reward.py", START - timedelta(days=40))
    keys = house.artifacts()
    for dry in (True, False):
        parts = collect(house, days=1, validate_only=dry)
        assert [part.name for part in parts] == [f"sessions/lost{number}" for number in range(3)]
        assert all("may have been lost" in part.refusal and "--force" in part.refusal for part in parts)
    assert house.artifacts() == keys
    assert [part.refusal for part in collect(house, days=1, force=True)] == [""] * 3 and house.artifacts() == set()


def test_most_of_the_store_is_not_removed(tmp_path: Path) -> None:
    house = House(tmp_path)
    house.add("kept")
    for number in range(evidence.FEW + 1):
        put(house.store, f"sessions/lost{number}/iterations/1/reward.py", START + timedelta(days=1))
    keys = house.artifacts()
    parts = collect(house, days=40)
    refusals = {part.refusal for part in parts if part.kind == pb.GARBAGE_KIND_ARTIFACTS}
    assert house.artifacts() >= {key for key in keys if "lost" in key}
    assert len(refusals) == 1 and "11 of 12 sessions" in refusals.pop()


def test_a_clock_that_is_set_forward_removes_nothing(tmp_path: Path) -> None:
    house = House(tmp_path, replace(POLICY, gap=7))
    house.add("gone")
    house.delete("gone")
    house.clock.now = START + timedelta(days=1)
    house.retention.begin("one", 3600)
    keys = house.artifacts()
    for dry in (True, False):
        (part,) = collect(house, days=43, validate_only=dry)
        assert "42 days after the last time" in part.refusal and not part.kind
    house.retention.begin("one", 3600)  # a server that runs meanwhile does not make it right
    assert len(collect(house, days=43)) == 1 and house.artifacts() == keys
    assert collect(house, days=2) == []  # the clock is right again
    assert "sessions/gone" in {part.name for part in collect(house, days=43, force=True)} and house.artifacts() == set()
    assert collect(house, days=44) == []


def test_days_of_use_remove_what_is_due(tmp_path: Path) -> None:
    house = House(tmp_path, replace(POLICY, gap=7))
    house.add("gone")
    house.delete("gone")
    for day in range(1, 32, 5):
        house.clock.now = START + timedelta(days=day)
        house.retention.begin("one", 3600)
    assert "sessions/gone" in {part.name for part in collect(house, days=31)}


@pytest.mark.parametrize("gap", [None, 60])
def test_a_longer_gap_may_be_allowed(tmp_path: Path, gap: float | None) -> None:
    house = House(tmp_path, replace(POLICY, gap=gap))
    house.add("gone")
    house.delete("gone")
    assert "sessions/gone" in {part.name for part in collect(house, days=43)}
