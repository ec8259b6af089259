"""A session whose server dies after a step's work, before that is recorded, and that another server continues to its end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from dressage.api.v1 import event_pb2 as ev
from dressage.api.v1 import session_pb2 as v1
from dressage.api.v1 import session_service_pb2 as pb
from dressage.api.v1 import session_service_pb2_grpc
from dressage.serving.channels import connect

from tests.integration.orchestrator.fakes import watch
from tests.integration.orchestrator.stack import Stack
from tests.integration.orchestrator.test_orchestrator_killed_steps import address_of, server


@asynccontextmanager
async def ended_session(
    stack: Stack, spec: v1.SessionSpec, step: int
) -> AsyncIterator[tuple[Any, str, list[ev.Event]]]:
    """A stub of the server on which the session ended, the session's name and its events.

    :param step: number of the step whose work the first server does not survive; 0: it lives.
    """
    folder, name = stack.folder / f"killed-{step}", f"kill-{step}"
    folder.mkdir()
    (folder / "artifacts").symlink_to(stack.folder / "artifacts")
    request = pb.CreateSessionRequest(spec=spec, session_id=name)
    addresses = (stack.neighbours.address, stack.neighbours.address)
    if step:
        async with server(folder, *addresses, step) as first:
            stub: Any = session_service_pb2_grpc.SessionServiceStub(connect(await address_of(folder, first)))
            await stub.CreateSession(request)
            await asyncio.wait_for(asyncio.to_thread(first.wait), 240)
        assert (folder / "killed").exists()
    async with server(folder, *addresses, 0) as second:
        stub = session_service_pb2_grpc.SessionServiceStub(connect(await address_of(folder, second)))
        if not step:
            await stub.CreateSession(request)
        yield stub, f"sessions/{name}", await watch(stub, f"sessions/{name}")
