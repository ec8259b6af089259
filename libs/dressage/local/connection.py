"""The server for a command or a function: the named one, the one that runs on the data folder, or one in this process.

Work that only reads (`sessions list`) may start a stack without agents, judges and renderers on a data folder that no server
uses, and stops it at its end.
"""

from __future__ import annotations

import asyncio
import shlex
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypeVar

from dressage import errors
from dressage.client import AsyncClient
from dressage.client.discovery import find_local_server, local_token
from dressage.client.endpoints import Endpoint, Trust
from dressage.places import data_dir, default_data_dir

T = TypeVar("T")

_LOCKED_SECONDS = 30.0
_LOCKED_RETRY_SECONDS = 0.5

Kind = Literal["stack", "joined", "remote"]
Start = Literal["no", "records", "own", "full"]


@dataclass(frozen=True)
class ServerOptions:
    """Which server to use, and what a server in this process needs."""

    address: str | None = None
    token: str | None = None
    data_dir: Path | None = None
    api_base: str | None = None
    recordings: Path | None = None
    api_bases: tuple[str, ...] = ()
    """Further endpoints, which sessions choose for single roles."""
    trust: Trust = field(default_factory=Trust)
    """Whom the client trusts, for a named server."""

    @property
    def folder(self) -> Path:
        """The data folder in use."""
        return data_dir(self.data_dir)


@dataclass(frozen=True)
class Connection:
    """A client, and facts about its server."""

    client: AsyncClient
    kind: Kind
    """`stack`: in this process; `joined`: another process on this data folder; `remote`: named by its address."""
    artifacts: Path | None
    """The folder of the artifact store, if it is on this machine."""
    flags: str = ""
    """Options, with a leading space, with which another command uses the same server."""
    read_only: bool = False
    """No server runs on the data folder but the one in this process, and that one continues no session."""

    def local_path(self, key: str) -> Path | None:
        """The path of an artifact (or of a prefix) on this machine; None if it is not here."""
        if self.artifacts is None or not key:
            return None
        path = self.artifacts / key
        return path if path.exists() else None


@asynccontextmanager
async def connect(server: ServerOptions, *, start: Start = "records") -> AsyncIterator[Connection]:
    """Open a connection, and close it at the end.

    :param start: what to start if no server is named and none runs: nothing (an error then), a stack that only reads and
        records, one for this command's own session, or a full one, which also continues interrupted sessions.
    :raises FailedPrecondition: if there is no server and none may be started.
    """
    if server.address:
        token = server.token or await asyncio.to_thread(local_token, server.address, server.folder)
        async with AsyncClient.connect(server.address, token, trust=server.trust) as client:
            yield Connection(client, "remote", None, _server_flags(server, client.endpoint))
        return
    deadline = time.monotonic() + _LOCKED_SECONDS
    while True:
        try:
            connection, stop = await _local(server, start)
            break
        except errors.FailedPrecondition as error:
            # Another command holds the folder for a moment, or a server that is not up yet.
            if error.reason != "DATA_FOLDER_IN_USE" or time.monotonic() > deadline:
                raise
            await asyncio.sleep(_LOCKED_RETRY_SECONDS)
    try:
        async with connection.client:
            yield connection
    finally:
        await stop()


def refuse_unusable(server: ServerOptions, connection: Connection, *, detach: bool) -> None:
    """Refuse options that this connection cannot honour.

    :raises InvalidArgument: for an endpoint or a folder of recordings that the running server was not started with.
    :raises FailedPrecondition: to detach where no server would continue the session.
    """
    if server.api_base and connection.kind != "stack":
        raise errors.InvalidArgument(
            field="api_base",
            problem="not supported with a running server",
            value=server.api_base,
            remedy="Set it for `dressage serve`.",
        )
    if server.recordings and connection.kind == "remote":
        raise errors.InvalidArgument(
            field="replay",
            problem="not supported with a remote server",
            value=str(server.recordings),
            remedy="Start the server with `dressage serve --recordings`, and use the model recorded/NAME.",
        )
    if detach and connection.kind == "stack":
        raise errors.FailedPrecondition(
            "no server runs that would continue a detached session. Start one with `dressage serve`.",
            reason="NO_SERVER",
        )


async def _local(server: ServerOptions, start: Start) -> tuple[Connection, Callable[[], Awaitable[None]]]:
    """Return a connection to the server of the data folder, started if necessary, and a function that ends it."""
    folder, flags = server.folder, _folder_flag(server)
    running = await asyncio.to_thread(find_local_server, folder)
    if running is not None:
        # The file comes first: $DRESSAGE_TOKEN may be meant for another server.
        token = running.token or server.token
        client = AsyncClient.connect(f"http://{running.address}", token)
        return Connection(client, "joined", folder / "artifacts", flags), _nothing
    if start == "no":
        raise errors.FailedPrecondition(
            f"no server runs on {folder}: start one with `dressage serve`, or give one with --address",
            reason="NO_SERVER",
        )
    from dressage.local.stack import LocalStack

    stack = await LocalStack.start(
        folder,
        full=start != "records",
        hold=start == "own",
        api_base=server.api_base,
        api_bases=server.api_bases,
        recordings=server.recordings,
    )
    client = AsyncClient.connect(f"http://{stack.address}", stack.token)
    return Connection(client, "stack", stack.artifacts, flags, read_only=start == "records"), stack.stop


def _server_flags(server: ServerOptions, endpoint: Endpoint) -> str:
    """The options that name a server; the token is not among them, but the data folder that has it."""
    flags = f" --address {endpoint.url if endpoint.tls else endpoint.address}"
    if server.trust.ca_file is not None:
        flags += f" --ca-file {shlex.quote(str(server.trust.ca_file))}"
    if endpoint.token != server.token:
        flags += _folder_flag(server)
    return flags + (" --insecure" if server.trust.insecure else "")


def _folder_flag(server: ServerOptions) -> str:
    """The option, with a leading space, that names a data folder other than the default one."""
    named = server.data_dir is not None and server.folder != default_data_dir()
    return f" --data-dir {shlex.quote(str(server.data_dir))}" if named else ""


async def _nothing() -> None:
    """Another process's server keeps running."""


def execute(server: ServerOptions, work: Callable[[Connection], Awaitable[T]], *, start: Start = "records") -> T:
    """Run work with a connection and return its result."""

    async def connect_and_work() -> T:
        async with connect(server, start=start) as connection:
            return await work(connection)

    return asyncio.run(connect_and_work())
