"""Sources are parsed and arrays are read in many threads at once."""

from __future__ import annotations

import ast
import gc
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest
from dressage.envs.trajectory import load_check_trajectories
from dressage.parsing import syntax_tree

SOURCE = "x = " + "+".join("(a[0] if b else f(c, d=1))" for _ in range(40))


class Yielding:
    """Garbage whose end lets other threads run, as that of many libraries does."""

    def __init__(self) -> None:
        self.itself = self

    def __del__(self) -> None:
        time.sleep(0)


@pytest.fixture
def often_collected():
    """Collect garbage often, so that threads change while a tree is built."""
    before, stop = gc.get_threshold(), threading.Event()
    gc.set_threshold(20, 2, 2)
    try:
        yield stop
    finally:
        gc.set_threshold(*before)


def test_threads_parse_and_read_at_the_same_time(often_collected: threading.Event) -> None:

    def work(number: int) -> int:
        for _ in range(12):
            [Yielding() for _ in range(50)]
            syntax_tree(SOURCE)
            if number % 2:
                load_check_trajectories("CartPole-v1")
        return 1

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(work, range(8))) == 8


def test_a_tree_that_another_thread_disturbed_is_built_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """`inspect.signature` parses without the lock, while packages are imported."""
    outcomes = iter([SystemError("AST constructor recursion depth mismatch (before=42, after=184)")] * 3)

    def parse(source: str) -> ast.Module:
        for error in outcomes:
            raise error
        return ast.parse(source)

    monkeypatch.setattr("dressage.parsing.ast", SimpleNamespace(parse=parse))
    assert len(syntax_tree(SOURCE).body) == 1
    with pytest.raises(SyntaxError):
        syntax_tree("x =")
