"""Migrations: the tables they make are those the code uses, old folders are taken over, newer databases refused."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from dressage.api.v1 import session_pb2 as v1
from dressage.errors import Aborted, FailedPrecondition, InvalidArgument, Unavailable
from dressage_orchestrator.database import executors, runs, sessions
from dressage_orchestrator.database.engine import Database, DatabaseLost, Fenced, sqlite_url
from dressage_orchestrator.database.migrate import migrate, newest
from dressage_orchestrator.database.shared_secrets import shared_secret
from dressage_orchestrator.database.tables import METADATA
from dressage_orchestrator.launch.controller import RunController
from dressage_orchestrator.launch.protocol import Launch
from dressage_orchestrator.launch.tokens import RunTokens
from dressage_orchestrator.replicas import Replica

from tests.servers.ports import free_ports
from tests.servers.postgres import Postgres, postgres


@pytest.fixture(scope="module")
def server() -> Iterator[Postgres]:
    with postgres() as started:
        yield started


@pytest.fixture(scope="module")
def shared(server: Postgres) -> str:
    """The URL of a database that four servers made at once."""
    url, failures = server.database(), []

    def make() -> None:
        try:
            Database(url).close()
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=make) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    return url


def differences(url: str) -> list[object]:
    engine = sa.create_engine(url.replace("postgresql:", "postgresql+psycopg:"))
    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        found = compare_metadata(context, METADATA)
    engine.dispose()
    return found


def test_the_migrated_tables_are_the_ones_the_code_uses(tmp_path: Path, shared: str) -> None:
    url = sqlite_url(tmp_path / "new.db")
    Database(url).close()
    assert differences(url) == [] and differences(shared) == []


def test_a_folder_made_before_there_were_migrations_is_taken_over(tmp_path: Path) -> None:
    url = sqlite_url(tmp_path / "old.db")
    engine = sa.create_engine(url)
    old = [
        table for name, table in METADATA.tables.items() if name not in ("executors", "shared_secrets", "directions")
    ]
    METADATA.create_all(engine, tables=old)
    with engine.begin() as connection:
        connection.execute(sa.text("ALTER TABLE runs DROP COLUMN claimed_by"))
        message = v1.Session(name="sessions/s", spec=v1.SessionSpec(intent="run"))
        row = {"id": "s", "data": message.SerializeToString(), "state": 1, "create_micros": 1}
        connection.execute(sa.insert(METADATA.tables["sessions"]).values(**row))
    engine.dispose()
    with pytest.raises(FailedPrecondition, match="migrate"):
        Database(url, upgrade=False)
    for _ in range(2):
        database = Database(url)
        with database.begin() as tx:
            assert sessions.get(tx, "s").spec.intent == "run"
        database.close()
    Database(url, upgrade=False).close()
    assert differences(url) == []


def test_a_newer_database_is_refused_and_left_alone(tmp_path: Path) -> None:
    url = sqlite_url(tmp_path / "newer.db")
    Database(url).close()
    engine = sa.create_engine(url)
    with engine.begin() as connection:
        connection.execute(sa.text("UPDATE alembic_version SET version_num = '9999'"))
    for call in (lambda: Database(url), lambda: Database(url, upgrade=False), lambda: migrate(engine)):
        with pytest.raises(FailedPrecondition, match="9999") as refused:
            call()
        assert "\n" not in refused.value.message and newest() in refused.value.message
    engine.dispose()


def test_an_address_that_is_none_or_where_nobody_is() -> None:
    for bad in ("nonsense", "mysql://u:secret@h/d"):
        with pytest.raises(InvalidArgument, match="database_url") as told:
            Database(bad)
        assert "secret" not in told.value.message
    with pytest.raises(Unavailable, match="cannot use the database") as told_:
        Database(f"postgresql://u:secret@127.0.0.1:{free_ports(1)[0]}/d", patience=0.1)
    assert "secret" not in told_.value.message and isinstance(told_.value, DatabaseLost)


def test_all_servers_of_a_database_know_one_secret(shared: str) -> None:
    first, second = Database(shared, upgrade=False), Database(shared, upgrade=False)
    with first.begin() as tx:
        one = shared_secret(tx, "x", lambda: b"1" * 32)
    with second.begin() as tx:
        assert shared_secret(tx, "x", lambda: b"2" * 32) == one == b"1" * 32
    first.close()
    second.close()


class Bench:
    """Two servers and a clock that only the test moves."""

    def __init__(self, url: str) -> None:
        self.now = 0.0
        self.taken: list[set[str]] = []
        self.holders: set[str] = set()
        self.databases: list[Database] = []
        self.url = url

    def replica(self, name: str) -> Replica:
        database = Database(self.url, upgrade=False)
        self.databases.append(database)
        return Replica(
            database,
            name,
            holders=lambda: set(self.holders),
            take_over=self.taken.append,
            fenced=lambda: None,
            beat_seconds=1.0,
            lease_seconds=10.0,
            monotonic=lambda: self.now,
        )


def test_a_silent_server_is_taken_over_and_can_do_nothing_more(server: Postgres, shared: str) -> None:
    bench = Bench(shared)
    a, b = bench.replica("a"), bench.replica("b")
    bench.holders = {a.id, b.id}
    for bench.now in (0.0, 9.0, 18.0, 27.0):  # both beat: nobody is taken over, however long it takes
        assert a.look() and b.look()
    for bench.now in (28.0, 36.9):
        assert b.look() and bench.taken == []
    with bench.databases[0].begin() as tx:
        sessions.create(tx, "kept", v1.SessionSpec(intent="run"))
        runs.create(tx, v1.Run(name="sessions/kept/iterations/1/runs/train"), [])
        assert runs.claim(tx, "sessions/kept/iterations/1/runs/train", a.id)
    with bench.databases[1].begin() as tx:
        assert not runs.claim(tx, "sessions/kept/iterations/1/runs/train", b.id), "its holder lives"
        assert runs.orphans(tx) == []
    bench.now = 38.5
    assert b.look() and bench.taken == [{a.id}]
    with bench.databases[1].begin() as tx:
        assert runs.orphans(tx) == ["sessions/kept/iterations/1/runs/train"]
        assert runs.claim(tx, "sessions/kept/iterations/1/runs/train", b.id)
    with pytest.raises(Fenced), bench.databases[0].begin() as tx:
        sessions.create(tx, "late", v1.SessionSpec(intent="run"))
    assert not a.look()
    assert b.look() and bench.taken == [{a.id}] * 2, "what is still the dead one's is taken at every look"
    bench.holders = {b.id}
    assert b.look() and b.look() and len(bench.taken) == 2

    again = bench.replica("a")
    assert again.id != a.id and again.look()
    again.leave()
    bench.holders = {again.id}
    assert b.look() and bench.taken[-1] == {again.id}, "one that left is taken over from at once"
    twin = bench.replica("b")
    assert not b.look() and twin.look(), "a name is one process's: the newer one's"
    for database in bench.databases:
        database.close()


def test_of_several_that_see_a_death_one_declares_it(shared: str) -> None:
    database = Database(shared, upgrade=False)
    with database.begin() as tx:
        id_ = executors.register(tx, "dying")
        assert executors.beat(tx, id_)
        assert not executors.give_up(tx, id_, beats=0), "it beat since"
        assert executors.give_up(tx, id_, beats=1) and not executors.give_up(tx, id_, beats=1)
        assert not executors.beat(tx, id_)
    database.close()


def test_a_clash_is_told_as_one(shared: str) -> None:
    database = Database(shared, upgrade=False)
    rows = [{"session": "s", "name": "twice"}] * 2
    with pytest.raises(Aborted), database.begin() as tx:
        tx.execute(sa.insert(METADATA.tables["effects"]).values(rows))
    database.close()


class Trainers:
    """A launcher that starts nothing and remembers what it was asked for."""

    cores_per_run = 1
    attempts_per_launch = 1

    def __init__(self) -> None:
        self.submitted: list[tuple[str, int]] = []

    def submit(self, launch: Launch, starting: object) -> None:
        self.submitted.append((launch.run, launch.attempt))

    def knows(self, run: str, attempt: int) -> bool:
        return (run, attempt) in self.submitted


async def test_runs_of_the_dead_and_idle_ones_of_its_own_get_a_trainer(shared: str) -> None:
    """The dead one's at the first look; its own, whose workflow may be another server's, at the second."""
    database = Database(shared, upgrade=False)
    prefix = "sessions/idle/iterations/1/runs"
    with database.begin() as tx:
        sessions.create(tx, "idle", v1.SessionSpec(intent="run"))
        me, living, dead = (executors.register(tx, f"idle-{name}") for name in ("me", "living", "dead"))
        executors.give_up(tx, dead)
        for name, holder in (("mine", me), ("theirs", living), ("orphan", dead)):
            runs.create(tx, v1.Run(name=f"{prefix}/{name}", pool="local"), [])
            assert runs.claim(tx, f"{prefix}/{name}", holder) or holder == dead
        tx.execute(sa.update(METADATA.tables["runs"]).where(sa.text("name LIKE '%orphan'")).values(claimed_by=dead))
    controller = RunController(database, RunTokens(b"k" * 16), token_seconds=60, max_failures=1, executor=me)
    controller.launcher = trainers = Trainers()  # type: ignore[assignment]
    await controller.look()
    ours = lambda: sorted(name for name, _ in trainers.submitted if name.startswith(prefix))  # noqa: E731
    assert ours() == [f"{prefix}/orphan"]
    await controller.look()
    assert ours() == [f"{prefix}/mine", f"{prefix}/orphan"]
    await controller.look()
    assert len(ours()) == 2
    database.close()
