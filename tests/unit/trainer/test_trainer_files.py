"""Uploads wait for a store that is unavailable for a while, and give up after repeated refusals."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from dressage.artifacts.store import Grant
from dressage.errors import PermissionDenied, Unavailable
from dressage_trainer.lease import files
from tenacity import wait_none


class Work:
    """Grants for any key."""

    def __init__(self) -> None:
        self.requests = 0

    async def grants(self, *, put: Any = (), get: Any = ()) -> dict[str, Grant]:
        self.requests += 1
        return {key: Grant(url=f"http://store/{key}") for key in (*put, *get)}


@pytest.fixture
def tries(monkeypatch: pytest.MonkeyPatch) -> list[Exception]:
    """Errors with which the store answers, one a try; then it accepts the file."""
    errors: list[Exception] = []

    def upload(grant: Grant, path: Path) -> None:
        if errors:
            raise errors.pop(0)

    monkeypatch.setattr(files, "upload", upload)
    monkeypatch.setattr(files, "wait_random_exponential", lambda **_: wait_none())
    return errors


async def test_a_store_that_is_unavailable_is_waited_for(tries: list[Exception], tmp_path: Path):
    tries += [*[Unavailable("unavailable")] * 20, *[PermissionDenied("not yet")] * 4, *[Unavailable("unavailable")] * 6]
    work = Work()
    await files.put_files(work, {"a": tmp_path})  # type: ignore[arg-type]
    assert not tries and work.requests == 31  # a new URL for each try: the one before may have expired


async def test_a_store_that_stays_unavailable_is_given_up(
    tries: list[Exception], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(files, "_OUTAGE_SECONDS", 0.0)
    tries += [Unavailable("unavailable")] * 2
    with pytest.raises(Unavailable, match="unavailable"):
        await files.put_files(Work(), {"a": tmp_path})  # type: ignore[arg-type]


async def test_a_refusal_is_not_tried_for_ever(tries: list[Exception], tmp_path: Path):
    tries += [PermissionDenied("no")] * 30
    with pytest.raises(PermissionDenied):
        await files.put_files(Work(), {"a": tmp_path})  # type: ignore[arg-type]
    assert len(tries) == 24
