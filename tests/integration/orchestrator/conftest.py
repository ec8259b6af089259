"""The stack that the tests of this folder share."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.integration.orchestrator.stack import Stack

sys.path.insert(0, str(Path(__file__).parents[2] / "fakes"))  # the scripted authors import their server by its name


@pytest_asyncio.fixture
async def stack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Stack]:
    monkeypatch.setenv("DRESSAGE_TRAINER_GO", str(tmp_path / "go"))
    monkeypatch.setenv("OPENAI_API_KEY", "must not reach a trainer")
    stack = Stack(tmp_path)
    await stack.neighbours.start()
    try:
        yield stack
    finally:
        await stack.stop()
        await stack.neighbours.stop()
