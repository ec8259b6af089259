"""Compiled updates are shared by the tests of this folder: most train groups of the same few shapes."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="session", autouse=True)
def _compile_once(tmp_path_factory: pytest.TempPathFactory) -> None:
    from dressage_trainer.speed.warmup import use_compilation_cache

    use_compilation_cache(str(tmp_path_factory.mktemp("compiled")))
