from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from dressage.episodes import compiling


@pytest.fixture(scope="session", autouse=True)
def kernels(request: pytest.FixtureRequest) -> Iterator[None]:
    """Keep compiled kernels between runs and among workers; the path is pytest's own cache."""
    before = compiling._Place.folder
    compiling.write_to(Path(request.config.cache.mkdir("kernels")))  # type: ignore[union-attr]
    yield
    compiling.read_from(before)
