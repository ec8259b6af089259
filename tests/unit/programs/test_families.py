"""Environments of program tasks: their cards are current, and they are found by their ids."""

from __future__ import annotations

import subprocess
import sys

import pytest
from dressage.envs.cards import PROGRAM_ENVIRONMENT_IDS, load_card
from dressage.envs.catalogue import catalogue
from dressage.errors import InvalidArgument, NotFound
from dressage.programs.cards import build_card, card_text
from dressage.programs.families import FAMILIES, program_task
from dressage.programs.recorded import recorded_replies


@pytest.mark.parametrize("environment", PROGRAM_ENVIRONMENT_IDS)
def test_cards_are_current(environment: str) -> None:
    assert catalogue()[environment].card_file.read_text("utf-8") == card_text(build_card(program_task(environment)))
    card = load_card(environment)
    assert card.methods == ("program",) and not card.has_video and card.target == 1.0
    assert len(recorded_replies(environment).replies) >= 32


def test_every_task_has_an_environment() -> None:
    assert {f"{family.name}/{task}" for family in FAMILIES.values() for task in family.tasks} == {
        *PROGRAM_ENVIRONMENT_IDS
    }


def test_unknown_tasks_and_profiles_are_named() -> None:
    with pytest.raises(NotFound, match=r"karel/Nothing.*karel/DoorKey"):
        program_task("karel/Nothing")
    with pytest.raises(InvalidArgument, match="llmgs-v1"):
        program_task("karel/DoorKey", "paper")


def test_tasks_are_known_without_a_compiler() -> None:
    code = "import sys, dressage.programs.families; print({'numba', 'gymnasium', 'jax'} & set(sys.modules))"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert result.stdout.strip() == "set()"
