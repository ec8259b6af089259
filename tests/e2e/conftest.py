"""End-to-end tests run one after the other: each uses all cores."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1] / "fakes"))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """One worker takes all end-to-end tests (`--dist loadgroup`)."""
    for item in items:
        if "tests/e2e" in str(item.path):
            item.add_marker(pytest.mark.xdist_group("e2e"))
