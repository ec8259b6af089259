"""`dressage runs logs --follow`: prints what is added to the log of a run, until the run ends.

The API reads the end of a log. Two readings overlap, so that what is new is what follows the overlap; if they do not, lines
between them were longer than a reading, and a line marks the place.
"""

from __future__ import annotations

import asyncio
import sys

from dressage.api.v1 import session_pb2 as pb
from dressage.local.connection import Connection

_SECONDS = 1.0
_OVERLAP = 512
"""Characters at the end of a reading that identify the place in the next one."""

_ENDED = (pb.RUN_STATE_SUCCEEDED, pb.RUN_STATE_FAILED, pb.RUN_STATE_CANCELLED)


async def follow(name: str, connection: Connection, *, tail: int) -> None:
    """Print the end of a log, and then what is added to it, until the run ends.

    :param name: full name of the run.
    :param tail: bytes of a reading.
    """
    text = ""
    while True:
        ended = (await connection.client.get_run(name)).state in _ENDED
        log = (await connection.client.read_run_log(name, tail_bytes=tail)).text
        sys.stdout.write(added(text, log))
        sys.stdout.flush()
        text = log or text
        if ended:
            return
        await asyncio.sleep(_SECONDS)


def added(before: str, after: str) -> str:
    """Return what a reading of a log has that the reading before did not have."""
    if not before or after == before:
        return "" if after == before else after
    end = before[-_OVERLAP:]
    place = after.rfind(end)
    return after[place + len(end) :] if place >= 0 else f"\n… (lines are missing here)\n{after}"
