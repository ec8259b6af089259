"""Uploads outlast a store that is away for a while, and do not try a refusal for ever."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from dressage.artifacts.store import Grant
from dressage.errors import PermissionDenied, Unavailable
from dressage_trainer.lease import files as uploads
from tenacity import wait_none


class Work:
    """Grants for whatever is asked for."""

    def __init__(self) -> None:
        self.asked = 0

    async def grants(self, *, put: Any = (), get: Any = ()) -> dict[str, Grant]:
        self.asked += 1
        return {key: Grant(url=f"http://store/{key}") for key in (*put, *get)}


@pytest.fixture
def tries(monkeypatch: pytest.MonkeyPatch) -> list[Exception]:
    """Errors that the store answers with, one a try; then it takes the file."""
    errors: list[Exception] = []

    def upload(grant: Grant, path: Path) -> None:
        if errors:
            raise errors.pop(0)

    monkeypatch.setattr(uploads, "upload", upload)
    monkeypatch.setattr(uploads, "wait_random_exponential", lambda **_: wait_none())
    return errors


async def test_a_store_that_is_away_is_waited_for(tries: list[Exception], tmp_path: Path):
    tries += [*[Unavailable("away")] * 20, *[PermissionDenied("not yet")] * 4, *[Unavailable("away")] * 6]
    work = Work()
    await uploads.put_files(work, {"a": tmp_path})  # type: ignore[arg-type]
    assert not tries and work.asked == 31  # a new URL for each try: the one before may have expired


async def test_a_store_that_stays_away_is_given_up(
    tries: list[Exception], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(uploads, "_OUTAGE_SECONDS", 0.0)
    tries += [Unavailable("away")] * 2
    with pytest.raises(Unavailable, match="away"):
        await uploads.put_files(Work(), {"a": tmp_path})  # type: ignore[arg-type]


async def test_a_refusal_is_not_tried_for_ever(tries: list[Exception], tmp_path: Path):
    tries += [PermissionDenied("no")] * 30
    with pytest.raises(PermissionDenied):
        await uploads.put_files(Work(), {"a": tmp_path})  # type: ignore[arg-type]
    assert len(tries) == 24
