"""The outbox: uploads keep their order while the store is slow, so that the newest records of a training remain."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

from dressage_trainer.assignments.delivery import StagedCheckpoint
from dressage_trainer.assignments.queues import Outbox
from dressage_trainer.messages import CheckpointMessage
from hypothesis import given, settings
from hypothesis import strategies as st


def staged(folder: Path, number: int) -> StagedCheckpoint:
    target = folder / str(number)
    target.mkdir()
    message = CheckpointMessage(path="c", update=number, env_step=number, requested=False)
    return StagedCheckpoint(target, target / "c", {}, message)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.sampled_from(["upload", "checkpoint", "pause"]), max_size=30))
def test_uploads_keep_their_order_and_the_newest_checkpoint_is_stored(
    tmp_path_factory: object, plan: list[str]
) -> None:
    folder: Path = tmp_path_factory.mktemp("outbox")  # type: ignore[attr-defined]
    done: list[int] = []

    async def upload(number: int) -> None:
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        done.append(number)

    async def run() -> None:
        outbox = Outbox(lambda checkpoint: upload(checkpoint.message.update))
        running = asyncio.create_task(outbox.run())
        for number, kind in enumerate(plan):
            if kind == "upload":
                outbox.put(lambda number=number: upload(number))  # type: ignore[misc]
            elif kind == "checkpoint":
                outbox.put_checkpoint(staged(folder, number))
            else:
                await asyncio.sleep(0)
        async with asyncio.timeout(10):
            await outbox.flush()
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running

    asyncio.run(run())
    uploads = [number for number, kind in enumerate(plan) if kind == "upload"]
    checkpoints = [number for number, kind in enumerate(plan) if kind == "checkpoint"]
    assert done == sorted(done) and set(uploads) <= set(done) <= {*uploads, *checkpoints}
    assert not checkpoints or checkpoints[-1] in done
