"""Compilation for later assignments in the background: one at a time, with a report at the end, cancelled for want of time."""

from __future__ import annotations

import asyncio
import threading
import time
from pathlib import Path
from typing import Any

from dressage_trainer.lease.compiled import Fillings


class Cache:
    """Compiles once it may, or ends when it is closed."""

    def __init__(self) -> None:
        self.begun, self.may_end, self.closed = 0, threading.Event(), False

    def prepare(self, code: Any) -> Path | None:
        self.begun += 1
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            if self.closed:
                return None
            if self.may_end.wait(0.01):
                return Path()
        raise AssertionError

    def close(self) -> None:
        self.closed = True


async def test_one_at_a_time_is_compiled_and_reported():
    cache, filled = Cache(), []
    fillings = Fillings(cache, filled=lambda: filled.append(1))  # type: ignore[arg-type]
    fillings.start("code")  # type: ignore[arg-type]
    fillings.start("code")  # type: ignore[arg-type]
    await asyncio.sleep(0.1)
    assert cache.begun == 1 and not filled
    cache.may_end.set()
    await fillings.close(seconds=20)
    assert filled == [1] and cache.closed


async def test_it_is_ended_when_there_is_no_time():
    cache, filled = Cache(), []
    fillings = Fillings(cache, filled=lambda: filled.append(1))  # type: ignore[arg-type]
    fillings.start("code")  # type: ignore[arg-type]
    await asyncio.wait_for(fillings.close(seconds=0.05), 10)
    assert cache.begun == 1 and not filled


async def test_with_nothing_to_compile_closing_is_immediate():
    await asyncio.wait_for(Fillings(Cache(), filled=lambda: None).close(seconds=60), 1)  # type: ignore[arg-type]
