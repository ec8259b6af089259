"""`tests/extended.toml`: its names are those of tests that exist."""

from __future__ import annotations

import ast
import fnmatch
from pathlib import Path

import pytest

from tests.extended import entries

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("name", [name for entry in entries() for name in entry.tests])
def test_the_list_names_tests_that_exist(name: str) -> None:
    file, _, test = name.partition("::")
    source = ROOT / file
    assert source.exists()
    nodes = ast.walk(ast.parse(source.read_text()))
    functions = [node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    pattern = test.partition("[")[0] or "*"
    assert any(name.startswith("test_") and fnmatch.fnmatchcase(name, pattern) for name in functions)


def test_every_entry_states_what_remains_covered() -> None:
    assert all(entry.property and entry.quick for entry in entries())
