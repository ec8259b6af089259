"""A server file leads to the server of the folder only: not to whoever has its process id and port after a crash."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from dressage.client import find_local_server
from dressage.client.discovery import LOCK_FILE, SERVER_FILE, local_token
from dressage.errors import FailedPrecondition
from dressage_orchestrator.lock import DataFolderLock

SERVER = """
import json, os, socket, sys, time
from pathlib import Path
from dressage.artifacts.atomic import write_bytes
from dressage_orchestrator.lock import DataFolderLock
folder = Path(sys.argv[1])
lock = DataFolderLock(folder)
lock.acquire()
listening = socket.create_server(("127.0.0.1", 0))
address = f"127.0.0.1:{listening.getsockname()[1]}"
write_bytes(folder / "server.json", json.dumps({"address": address, "pid": os.getpid(), "token": "secret"}).encode())
print(address, flush=True)
time.sleep(60)
"""


@pytest.fixture
def listener() -> Iterator[tuple[str, int]]:
    """What any user can start: a process with a known id that listens."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield f"127.0.0.1:{listening.getsockname()[1]}", os.getpid()


def write_file(folder: Path, address: str, pid: int, mode: int = 0o600) -> None:
    path = folder / SERVER_FILE
    path.write_text(json.dumps({"address": address, "pid": pid, "token": "secret"}))
    path.chmod(mode)


def test_a_file_that_outlived_its_server_is_not_believed(tmp_path: Path, listener: tuple[str, int]):
    with subprocess.Popen([sys.executable, "-c", SERVER, str(tmp_path)], stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        address = server.stdout.readline().strip()
        running = find_local_server(tmp_path)
        assert running is not None and (running.address, running.token) == (address, "secret")
        server.send_signal(signal.SIGKILL)
    assert (tmp_path / SERVER_FILE).exists()
    write_file(tmp_path, *listener)
    assert find_local_server(tmp_path) is None
    assert local_token(listener[0], tmp_path) is None


def test_the_next_holder_of_the_folder_removes_an_old_file(tmp_path: Path, listener: tuple[str, int]):
    write_file(tmp_path, *listener)
    lock = DataFolderLock(tmp_path)
    lock.acquire()
    try:
        assert find_local_server(tmp_path) is None
        write_file(tmp_path, *listener)
        assert find_local_server(tmp_path) is not None
    finally:
        lock.release()
    assert find_local_server(tmp_path) is None


@pytest.mark.parametrize("mode", [0o644, 0o620, 0o604])
def test_a_file_that_others_can_read_or_write_is_not_believed(tmp_path: Path, listener: tuple[str, int], mode: int):
    lock = DataFolderLock(tmp_path)
    lock.acquire()
    try:
        write_file(tmp_path, *listener, mode=mode)
        assert find_local_server(tmp_path) is None
        (tmp_path / "elsewhere").write_text((tmp_path / SERVER_FILE).read_text())
        (tmp_path / "elsewhere").chmod(0o600)
        (tmp_path / SERVER_FILE).unlink()
        (tmp_path / SERVER_FILE).symlink_to(tmp_path / "elsewhere")
        assert find_local_server(tmp_path) is None
    finally:
        lock.release()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_a_file_of_another_user_is_not_believed(
    tmp_path: Path, listener: tuple[str, int], monkeypatch: pytest.MonkeyPatch
):
    lock = DataFolderLock(tmp_path)
    lock.acquire()
    try:
        write_file(tmp_path, *listener)
        monkeypatch.setattr(os, "geteuid", lambda: 12345)
        assert find_local_server(tmp_path) is None
    finally:
        monkeypatch.undo()
        lock.release()


def test_looking_for_a_server_does_not_keep_one_from_starting(tmp_path: Path):
    lock = DataFolderLock(tmp_path)
    lock.acquire()
    with pytest.raises(FailedPrecondition, match="in use"):
        DataFolderLock(tmp_path).acquire()
    lock.release()
    look = "from dressage.client.discovery import _is_locked\nfrom pathlib import Path\nprint(flush=True)\n"
    look += f"while True: assert not _is_locked(Path({str(tmp_path / LOCK_FILE)!r})) or True"
    with subprocess.Popen([sys.executable, "-c", look], stdout=subprocess.PIPE) as looking:
        assert looking.stdout is not None
        looking.stdout.readline()
        try:
            for _ in range(20):
                lock.acquire()
                lock.release()
        finally:
            looking.kill()
