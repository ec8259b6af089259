"""Python SDK: `Client` for ordinary code, `AsyncClient` for asyncio.

    from dressage.client import Client

    with Client.connect("127.0.0.1:7400") as client:
        session = client.create_session(SessionSpec(intent="run forward", environment="environments/HalfCheetah-v5"))
        for response in client.watch_session(session.name):
            print(response.event)

Methods take and return the messages of `dressage.api.v1`; errors are those of `dressage.errors`. `Client` is a thin
shell over `AsyncClient`, so there is one implementation of retries, paging, watching and downloads.
"""

from dressage.client.aio import AsyncClient
from dressage.client.calls import CallPolicy
from dressage.client.discovery import LocalServer, find_local_server
from dressage.client.endpoints import Trust
from dressage.client.sync import Client

__all__ = ["AsyncClient", "CallPolicy", "Client", "LocalServer", "Trust", "find_local_server"]
