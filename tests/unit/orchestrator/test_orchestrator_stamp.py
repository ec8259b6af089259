"""A database of another version is refused before the first query, with what to do."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa
from dressage.errors import FailedPrecondition
from dressage_orchestrator.database import sessions, stamp
from dressage_orchestrator.database.engine import Database, sqlite_url

from tests.servers.postgres import Postgres, postgres


@pytest.fixture(scope="module")
def server() -> Iterator[Postgres]:
    with postgres() as started:
        yield started


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A database of this version."""
    kind = request.param
    url = sqlite_url(tmp_path / "d.db") if kind == "sqlite" else request.getfixturevalue("server").database()
    Database(url).close()
    return str(url)


def alter(url: str, *statements: str) -> None:
    engine = sa.create_engine(url.replace("postgresql://", "postgresql+psycopg://"))
    with engine.begin() as connection:
        for statement in statements:
            connection.execute(sa.text(statement))
    engine.dispose()


def refusal(url: str) -> str:
    for upgrade in (True, False):
        with pytest.raises(FailedPrecondition) as refused:
            Database(url, upgrade=upgrade)
        assert refused.value.reason == "DATABASE_OTHER_VERSION"
    return refused.value.message


def test_a_database_without_a_column_of_this_version_is_refused(url: str) -> None:
    alter(url, "ALTER TABLE speeds DROP COLUMN steps_per_second", "UPDATE stamps SET value = '0' WHERE name = 'schema'")
    message = refusal(url)
    assert "schema 0)" in message and stamp.schema() in message and "dressage export" in message


def test_a_database_of_before_the_stamp_is_refused(url: str) -> None:
    alter(url, "DROP TABLE stamps")
    assert "without a stamp" in refusal(url)


def test_a_refused_database_is_unchanged(url: str) -> None:
    alter(url, "UPDATE stamps SET value = 'x' WHERE name = 'schema'")
    refusal(url)
    alter(url, f"UPDATE stamps SET value = '{stamp.schema()}' WHERE name = 'schema'")
    database = Database(url)
    with database.read() as tx:
        assert sum(sessions.counts(tx).values()) == 0
    database.close()


def test_the_schema_changes_with_a_column(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = set()
    for columns in (1, 2):
        metadata = sa.MetaData()
        sa.Table("t", metadata, *(sa.Column(f"c{number}", sa.Integer) for number in range(columns)))
        monkeypatch.setattr(stamp, "METADATA", metadata)
        seen.add(stamp.schema())
    assert len(seen) == 2
