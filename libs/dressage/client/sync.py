"""The blocking client: `AsyncClient` on an event loop in a thread of its own.

Each method is derived from the asynchronous one with its name, parameters, types and documentation, so that retries,
paging and watching are implemented once. A new method of `AsyncClient` takes one line here; a test compares both.
"""

from __future__ import annotations

import functools
import os
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from dressage.client.aio import AsyncClient
from dressage.client.calls import CallPolicy
from dressage.client.endpoints import Trust
from dressage.client.loop import LoopThread

P = ParamSpec("P")
T = TypeVar("T")


def _call(
    method: Callable[Concatenate[AsyncClient, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Client, P], T]:
    """Derive a method that waits for the result."""

    @functools.wraps(method)
    def blocking(client: Client, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return client._loop.run(method(client._client, *args, **kwargs))

    return blocking


def _stream(
    method: Callable[Concatenate[AsyncClient, P], AsyncIterator[T]],
) -> Callable[Concatenate[Client, P], Iterator[T]]:
    """Derive a method that returns an ordinary iterator."""

    @functools.wraps(method)
    def blocking(client: Client, /, *args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
        return client._loop.iterate(method(client._client, *args, **kwargs))

    return blocking


class Client:
    """A blocking client of the public API; the methods are those of `AsyncClient`.

    Safe to use from several threads. Close it, or use it as a context manager. A forked child connects anew.
    """

    def __init__(self, loop: LoopThread, client: AsyncClient) -> None:
        self._loop = loop
        self._client = client

    @classmethod
    def connect(
        cls,
        address: str | None = None,
        token: str | None = None,
        *,
        trust: Trust | None = None,
        policy: CallPolicy | None = None,
        environ: Mapping[str, str] = os.environ,
    ) -> Self:
        """Return a client for a server; see `AsyncClient.connect`."""

        async def connect() -> AsyncClient:  # on the loop: a channel belongs to the loop that it is made in
            return AsyncClient.connect(address, token, trust=trust, policy=policy, environ=environ)

        loop = LoopThread()
        try:
            return cls(loop, loop.run(connect()))
        except BaseException:
            loop.stop()
            raise

    @property
    def address(self) -> str:
        """`host:port` of the server."""
        return self._client.address

    def close(self) -> None:
        """Close the connection; does nothing when repeated."""
        if self._loop.running:
            self._loop.run(self._client.close())
        self._loop.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    create_session = _call(AsyncClient.create_session)
    estimate_session = _call(AsyncClient.estimate_session)
    get_session = _call(AsyncClient.get_session)
    list_sessions = _stream(AsyncClient.list_sessions)
    cancel_session = _call(AsyncClient.cancel_session)
    resume_session = _call(AsyncClient.resume_session)
    steer_session = _call(AsyncClient.steer_session)
    approve_session = _call(AsyncClient.approve_session)
    delete_session = _call(AsyncClient.delete_session)
    undelete_session = _call(AsyncClient.undelete_session)
    watch_session = _stream(AsyncClient.watch_session)
    wait_session = _call(AsyncClient.wait_session)
    get_iteration = _call(AsyncClient.get_iteration)
    list_iterations = _stream(AsyncClient.list_iterations)
    get_run = _call(AsyncClient.get_run)
    list_runs = _stream(AsyncClient.list_runs)
    list_pools = _call(AsyncClient.list_pools)
    get_assignment = _call(AsyncClient.get_assignment)
    list_assignments = _stream(AsyncClient.list_assignments)
    read_run_log = _call(AsyncClient.read_run_log)
    get_lineage = _call(AsyncClient.get_lineage)
    label_rollout = _call(AsyncClient.label_rollout)
    get_environment = _call(AsyncClient.get_environment)
    list_environments = _stream(AsyncClient.list_environments)
    elicit = _call(AsyncClient.elicit)
    list_artifacts = _stream(AsyncClient.list_artifacts)
    get_artifact = _call(AsyncClient.get_artifact)
    get_rollout_video = _call(AsyncClient.get_rollout_video)
    read_artifact = _stream(AsyncClient.read_artifact)
    download_artifacts = _call(AsyncClient.download_artifacts)
    create_benchmark = _call(AsyncClient.create_benchmark)
    get_benchmark = _call(AsyncClient.get_benchmark)
    list_benchmarks = _stream(AsyncClient.list_benchmarks)
    watch_benchmark = _stream(AsyncClient.watch_benchmark)
    cancel_benchmark = _call(AsyncClient.cancel_benchmark)
    collect_garbage = _stream(AsyncClient.collect_garbage)
