"""Outputs equal the golden files; `python -m tests.golden.record` rewrites these."""

from __future__ import annotations

import difflib

import pytest

from tests.golden.record import FOLDER, NAMES, recorders
from tests.golden.trainings import differences

pytest.importorskip("jax")
pytest.importorskip("mujoco")

_SHOWN = 40


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", NAMES)
def test_outputs_equal_the_golden_files(name: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    unequal = []
    for path, now in recorders()[name]().items():
        recorded = (FOLDER / path).read_text("utf-8")
        if name == "trainings":
            unequal += differences(recorded, now)
        elif now != recorded:
            lines = difflib.unified_diff(recorded.splitlines(), now.splitlines(), path, "now", lineterm="", n=0)
            unequal += [line[:400] for line in lines][:_SHOWN]
    advice = f"if the change is meant: python -m tests.golden.record {name}, and read `git diff tests/golden`"
    assert not unequal, "\n".join([*unequal, advice])
