"""Reads `tests/extended.toml`: the tests that `make test-all` runs and `make test` does not."""

from __future__ import annotations

import fnmatch
import functools
import tomllib
from dataclasses import dataclass
from pathlib import Path

LIST = Path(__file__).with_name("extended.toml")


@dataclass(frozen=True)
class Extended:
    """Tests that cover a property beyond what `make test` covers of it.

    :param tests: names of tests; ``*`` stands for any text, brackets for themselves.
    """

    tests: tuple[str, ...]
    property: str
    quick: str

    def has(self, test: str) -> bool:
        """Whether a test, by its name from the root on, is one of these."""
        return any(fnmatch.fnmatchcase(test, pattern.replace("[", "[[]")) for pattern in self.tests)


@functools.cache
def entries() -> tuple[Extended, ...]:
    """Return the entries of the list, in order."""
    read = tomllib.loads(LIST.read_text())["extended"]
    return tuple(Extended(tuple(entry["tests"]), entry["property"], entry["quick"]) for entry in read)


def is_extended(test: str) -> bool:
    """Whether only `make test-all` runs the test, or all tests of a file where it is the name of a file."""
    return any(entry.has(test) for entry in entries())
