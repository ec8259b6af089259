"""A server with principals, and their calls."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import grpc
from dressage.client import AsyncClient, CallPolicy
from dressage.errors import DressageError
from dressage.rpc_errors import from_rpc
from google.protobuf import message_factory

from tests.fakes.public_api import METHODS
from tests.fakes.specs import reward_session
from tests.integration.orchestrator.stack import Stack

PEOPLE = {"vera": "viewer", "uma": "user", "ugo": "user", "ada": "admin"}
SPEC = reward_session(intent="run", environment="environments/HalfCheetah-v5", approve_before_evaluation=True, seeds=1)


def token_of(name: str) -> str:
    return f"the token of {name}"


def entry(name: str, role: str, quota: str = "") -> str:
    digest = hashlib.sha256(token_of(name).encode()).hexdigest()
    return f'[[principals]]\nname = "{name}"\nrole = "{role}"\ntoken_sha256 = "{digest}"\n{quota}\n'


def write_principals(folder: Path, quotas: dict[str, str] | None = None, people: dict[str, str] | None = None) -> Path:
    path = folder / "principals.toml"
    people = PEOPLE if people is None else people
    path.write_text("".join(entry(name, role, (quotas or {}).get(name, "")) for name, role in people.items()))
    return path


async def call(stack: Stack, method: str, request: Any, name: str | None) -> DressageError | None:
    """The error of a call of any kind, by a person; None without one."""
    descriptor = METHODS[method]
    kind = message_factory.GetMessageClass(descriptor.output_type)
    metadata = (("authorization", f"Bearer {token_of(name)}"),) if name else ()
    invoke = stack.channel.unary_stream if descriptor.server_streaming else stack.channel.unary_unary
    stub = invoke(
        f"/{method}", request_serializer=lambda m: m.SerializeToString(), response_deserializer=kind.FromString
    )
    running = stub(request, timeout=60, metadata=metadata)
    try:
        if descriptor.server_streaming:
            await anext(aiter(running), None)
            running.cancel()
        else:
            await running
    except grpc.aio.AioRpcError as error:
        return from_rpc(error)
    return None


def client(stack: Stack, name: str) -> AsyncClient:
    return AsyncClient.connect(stack.service.address, token_of(name), environ={}, policy=CallPolicy(total_seconds=60))
