"""One S3 server for the tests of this folder, on plain HTTP and on TLS."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.servers.seaweed import S3Server, other, seaweed


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path] | None:
    """A certificate for 127.0.0.1 and its key, made anew; None without the program `openssl`."""
    if shutil.which("openssl") is None:
        return None
    folder = tmp_path_factory.mktemp("authority")
    certificate, key = folder / "cert.pem", folder / "key.pem"
    command = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:prime256v1",
        "-nodes",
        "-days",
        "2",
        "-subj",
        "/CN=test",
    ]
    command += ["-addext", "subjectAltName=IP:127.0.0.1", "-out", str(certificate), "-keyout", str(key)]
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    return certificate, key


@pytest.fixture(scope="session")
def s3_server(tmp_path_factory: pytest.TempPathFactory, authority: tuple[Path, Path] | None) -> Iterator[S3Server]:
    elsewhere = other()
    if elsewhere is not None:
        yield elsewhere
        return
    with seaweed(tmp_path_factory.mktemp("seaweed"), certificate=authority) as server:
        yield server
