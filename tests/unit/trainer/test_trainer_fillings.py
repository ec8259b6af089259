"""Compilation for later assignments in the background: one at a time, with a report at the end, cancelled for want of time."""

from __future__ import annotations

import asyncio
import threading
import time
from pathlib import Path
from typing import Any

from dressage_trainer.speed.compiled import Filling, Fillings

REQUEST = {"environment": "Hopper-v5", "threads": 1}


class Cache:
    """Fills once it may, or ends when it is cancelled."""

    def __init__(self) -> None:
        self.begun, self.may_end = 0, threading.Event()

    def fill(self, key: str, request: Any, *, filling: Filling, **_: Any) -> bool:
        self.begun += 1
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            if filling.cancelled:
                return False
            if self.may_end.wait(0.01):
                return True
        raise AssertionError


async def test_one_at_a_time_is_filled_and_reported(tmp_path: Path):
    cache, filled = Cache(), []
    fillings = Fillings(cache, scratch=tmp_path, filled=lambda: filled.append(1))  # type: ignore[arg-type]
    fillings.start(REQUEST)
    fillings.start(REQUEST)
    await asyncio.sleep(0.1)
    assert cache.begun == 1 and not filled
    cache.may_end.set()
    await fillings.close(seconds=20)
    assert filled == [1]
    fillings.start(REQUEST)
    await fillings.close(seconds=20)
    assert cache.begun == 2


async def test_it_is_cancelled_when_there_is_no_time(tmp_path: Path):
    cache, filled = Cache(), []
    fillings = Fillings(cache, scratch=tmp_path, filled=lambda: filled.append(1))  # type: ignore[arg-type]
    fillings.start(REQUEST)
    await asyncio.wait_for(fillings.close(seconds=0.05), 10)
    assert cache.begun == 1 and not filled


async def test_with_nothing_to_fill_closing_is_immediate(tmp_path: Path):
    await asyncio.wait_for(Fillings(Cache(), scratch=tmp_path, filled=lambda: None).close(seconds=60), 1)  # type: ignore[arg-type]
