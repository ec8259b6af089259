"""Bundles of programs: what is saved is loaded, and damage is named."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from dressage.errors import InvalidArgument, NotFound
from dressage.policies import ProgramPolicy, is_code, is_program, load_program, program_from_bytes

POLICY = ProgramPolicy(
    program="DEF run m( move m)",
    python="def run():\n    move()",
    environment="karel/DoorKey",
    profile="corrected",
    report_states=(1_000, 1_001),
    provenance={"intent": "open the door"},
)


@pytest.mark.parametrize("name", ["bundle", "bundle.zip"])
def test_a_bundle_is_loaded_as_it_was_saved(tmp_path: Path, name: str) -> None:
    place = POLICY.save(tmp_path / name)
    assert load_program(place) == POLICY and is_program(place) and not is_code(place)
    if place.is_file():
        assert program_from_bytes(place.read_bytes()) == POLICY


def test_a_changed_program_is_refused(tmp_path: Path) -> None:
    place = POLICY.save(tmp_path / "bundle")
    (place / "program.txt").write_text("DEF run m( turnLeft m)\n")
    with pytest.raises(InvalidArgument, match="sha256"):
        load_program(place)


@pytest.mark.parametrize(("field", "value"), [("profile", 3), ("report_states", ["x"]), ("kind", "code")])
def test_a_damaged_card_is_named(tmp_path: Path, field: str, value: object) -> None:
    place = POLICY.save(tmp_path / "bundle")
    card = json.loads((place / "card.json").read_text())
    (place / "card.json").write_text(json.dumps(card | {field: value}))
    with pytest.raises(InvalidArgument, match=field):
        load_program(place)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    place = POLICY.save(tmp_path / "bundle")
    (place / "program.py").unlink()
    with pytest.raises(NotFound, match=r"program\.py"):
        load_program(place)
