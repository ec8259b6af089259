"""`dressage record`: a session as a folder for `dressage run --replay`."""

from __future__ import annotations

from pathlib import Path

from dressage.cli import output
from dressage.client.names import session_name
from dressage.local.connection import Connection, ServerOptions, execute
from dressage.sdk.recording import record as record_session


def record(session: str, server: ServerOptions, *, out: Path, as_json: bool) -> None:
    """Write a recording and print how to replay it."""

    async def work(connection: Connection) -> list[Path]:
        with output.writing("--out", out, expected="a folder that can be written to"):
            return await record_session(connection.client, session_name(session), out)

    files = execute(server, work)
    if as_json:
        output.print_json({"folder": str(out), "files": [str(path) for path in files]})
    else:
        print(f"{out}: {len(files) - 1} replies\n  replay: dressage run --replay {out}")
