"""Page tokens of the public API: those of this server continue a list, anything else is an invalid argument."""

from __future__ import annotations

import base64
import json
from typing import Any

import grpc
import pytest
from dressage.errors import InvalidArgument
from dressage.rpc_errors import from_rpc
from dressage_orchestrator.api.paging import PageTokens
from google.protobuf import message_factory

from tests.fakes.public_api import METHODS
from tests.integration.orchestrator.stack import Stack

PAGED = [name for name, method in METHODS.items() if "page_token" in method.input_type.fields_by_name]
PARENTS = {"ListIterations": "sessions/s", "ListRuns": "sessions/s", "ListAssignments": "sessions/s/iterations/-"}


def encoded(position: object) -> str:
    """The form of tokens before they were authenticated, without its digest."""
    return base64.urlsafe_b64encode(json.dumps(position).encode()).decode().rstrip("=")


FORGED = [
    "NQ",
    *(encoded(value) for value in (5, [5], [1, "a"], [[1, "a"], "0" * 12], [None, ""], {}, "x", [["a", "b"], "c"])),
    "=", "A", "é", "\x00", "a" * 5000, "....", "-_-_" * 20,
]  # fmt: skip


def test_all_lists_are_covered():
    assert len(PAGED) >= 7


async def test_forged_tokens_are_invalid_arguments(stack: Stack):
    await stack.start()
    foreign = PageTokens(b"another server's secret").encode([1, "a"], "sessions", False, 0)
    for name in PAGED:
        kind = message_factory.GetMessageClass(METHODS[name].input_type)
        for token in [*FORGED, foreign]:
            request: Any = kind(page_token=token)
            if "parent" in METHODS[name].input_type.fields_by_name:
                request.parent = PARENTS[name.rpartition("/")[2]]
            if "prefix" in METHODS[name].input_type.fields_by_name:
                request.prefix = "sessions/"
            call = stack.channel.unary_unary(f"/{name}", request_serializer=kind.SerializeToString)
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await call(request, timeout=10)
            error = from_rpc(refused.value)
            assert isinstance(error, InvalidArgument) and error.field == "page_token", (name, token, error)
