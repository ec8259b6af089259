"""A full disk, too little memory and damaged files are errors with a remedy, and no bugs of this program."""

from __future__ import annotations

import errno
import json
import sqlite3
from pathlib import Path

import pytest
import sqlalchemy as sa
from dressage.cli import doctor
from dressage.cli.main import invoke
from dressage.machine_errors import machine_error


def damage(path: Path) -> None:
    """Make a database of many pages, and overwrite one in its middle."""
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE t (x TEXT)")
        connection.executemany("INSERT INTO t VALUES (?)", [("x" * 500,) for _ in range(2000)])
        connection.execute("CREATE INDEX i ON t (x)")
    connection.close()
    with path.open("r+b") as file:
        file.seek(100 * 4096)
        file.write(b"\xff" * 8 * 4096)


def full_disk() -> None:
    with open("/dev/full", "wb", buffering=0) as file:
        file.write(b"x")


def memory() -> None:
    bytearray(1 << 62)


def mapping() -> None:
    raise ImportError("libx.so: failed to map segment from shared object: Cannot allocate memory")


def damaged_file(folder: Path) -> None:
    (folder / "workflows.db").write_bytes(b"no database" * 1000)
    engine = sa.create_engine(f"sqlite:///{folder / 'workflows.db'}")
    with engine.connect() as connection:
        connection.execute(sa.text("SELECT * FROM t"))


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        (full_disk, "DISK_FULL"),
        (memory, "OUT_OF_MEMORY"),
        (mapping, "OUT_OF_MEMORY"),
        (damaged_file, "DATABASE_DAMAGED"),
    ],
)
@pytest.mark.parametrize("wrapped", [False, True])
def test_a_fault_of_the_machine_is_an_error_with_a_remedy(
    fault, reason, wrapped, tmp_path, monkeypatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def command(*_: object, **__: object) -> None:
        try:
            fault(*([tmp_path] if fault is damaged_file else []))
        except Exception as error:
            if wrapped:
                raise ExceptionGroup("tasks", [RuntimeError("it failed"), error]) from None
            raise

    monkeypatch.setattr(doctor, "doctor", command)
    assert invoke(["doctor", "--json", "--data-dir", str(tmp_path)]) == 1
    error = json.loads(capsys.readouterr().err)["error"]
    assert error["reason"] == reason and "bug" not in error["message"]


def test_a_bug_stays_a_bug() -> None:
    for error in (
        ValueError("x"),
        RuntimeError("x"),
        OSError(errno.ENOENT, "x"),
        sqlite3.OperationalError("no such column"),
    ):
        assert machine_error(error) is None


@pytest.mark.parametrize("name", ["dressage.db", "workflows.db"])
def test_the_doctor_reads_the_databases(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    assert doctor._database(tmp_path, name).works
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE t (x TEXT)")
    connection.close()
    assert doctor._database(tmp_path, name).status.startswith("sound")
    path.unlink()
    damage(path)
    finding = doctor._database(tmp_path, name)
    assert not finding.works and finding.required and "damaged" in finding.status and ".recover" in finding.remedy
    path.write_bytes(b"no database at all" * 100)
    assert not doctor._database(tmp_path, name).works


@pytest.mark.parametrize("content", [None, b""])
def test_the_doctor_misses_a_lost_database(content: bytes | None, tmp_path: Path) -> None:
    (tmp_path / "artifacts" / "sessions" / "s").mkdir(parents=True)
    if content is not None:
        (tmp_path / "dressage.db").write_bytes(content)
    finding = doctor._database(tmp_path, "dressage.db")
    assert not finding.works and "artifacts of sessions" in finding.status
