"""TLS of the console: a replaced certificate is served without a restart, and the login's cookie is for HTTPS only."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
import trustme
from cryptography import x509
from dressage_console.http_server import HttpServer, bind
from starlette.responses import PlainTextResponse


def write(folder: Path, authority: trustme.CA) -> int:
    """Write a new certificate; its serial number."""
    leaf = authority.issue_cert("localhost")
    leaf.cert_chain_pems[0].write_to_path(folder / "tls.crt")
    leaf.private_key_pem.write_to_path(folder / "tls.key")
    return x509.load_pem_x509_certificate(leaf.cert_chain_pems[0].bytes()).serial_number


@pytest_asyncio.fixture
async def served(tmp_path: Path) -> AsyncIterator[tuple[trustme.CA, int, int]]:
    """The authority, the certificate's serial number, and the port."""
    authority = trustme.CA()
    serial = write(tmp_path, authority)
    tls = (tmp_path / "tls.crt", tmp_path / "tls.key")
    server = HttpServer(PlainTextResponse("ok"), bind("127.0.0.1:0"), grace_seconds=1, tls=tls)
    address = await server.start()
    yield authority, serial, int(address.rpartition(":")[2])
    await server.stop()


async def presented(authority: trustme.CA, port: int) -> int:
    """Serial number of the certificate that a client sees, which it verifies."""
    context = ssl.create_default_context(cadata=authority.cert_pem.bytes().decode())
    _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context, server_hostname="localhost")
    try:
        der = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        return x509.load_der_x509_certificate(der).serial_number
    finally:
        writer.close()


@pytest.mark.asyncio
async def test_a_replaced_certificate_is_served(served: tuple[trustme.CA, int, int], tmp_path: Path) -> None:
    authority, first, port = served
    assert await presented(authority, port) == first
    second = write(tmp_path, authority)
    assert second != first
    assert [await presented(authority, port) for _ in range(2)] == [second, second]


@pytest.mark.asyncio
async def test_a_half_written_certificate_changes_nothing(served: tuple[trustme.CA, int, int], tmp_path: Path) -> None:
    authority, first, port = served
    whole = (tmp_path / "tls.crt").read_text()
    (tmp_path / "tls.crt").write_text(whole[: len(whole) // 2])
    assert await presented(authority, port) == first
    # And a key that does not belong to it.
    (tmp_path / "tls.crt").write_text(whole)
    authority.issue_cert("localhost").private_key_pem.write_to_path(tmp_path / "tls.key")
    assert await presented(authority, port) == first
