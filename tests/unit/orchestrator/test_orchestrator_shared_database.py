"""Migrations: the tables they make are those the code uses, newer databases are refused. Servers that share one."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from dressage.api.v1 import session_pb2 as v1
from dressage.errors import Aborted, FailedPrecondition, InvalidArgument, Unavailable
from dressage_orchestrator.database import assignments, engine, executors, runs, sessions
from dressage_orchestrator.database.engine import Database, DatabaseLost, ExecutorFenced, sqlite_url
from dressage_orchestrator.database.executors import shared_secret
from dressage_orchestrator.database.migrate import migrate, newest
from dressage_orchestrator.database.tables import METADATA
from dressage_orchestrator.launch.controller import RunController
from dressage_orchestrator.launch.tokens import RunTokens
from dressage_orchestrator.replicas import Replica

from tests.servers.ports import free_ports
from tests.servers.postgres import Postgres, postgres
from tests.unit.orchestrator.leases import Recorder, add_session, add_training


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
        differences = compare_metadata(context, METADATA)
    engine.dispose()
    return differences


def test_the_migrated_tables_are_the_ones_the_code_uses(tmp_path: Path, shared: str) -> None:
    url = sqlite_url(tmp_path / "new.db")
    Database(url).close()
    assert differences(url) == [] and differences(shared) == []


def test_a_database_without_tables_requires_a_migration(tmp_path: Path) -> None:
    url = sqlite_url(tmp_path / "empty.db")
    with pytest.raises(FailedPrecondition, match="migrate"):
        Database(url, upgrade=False)
    for _ in range(2):
        Database(url).close()
    Database(url, upgrade=False).close()
    assert differences(url) == []


def test_a_newer_database_is_rejected_and_unchanged(tmp_path: Path) -> None:
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


def test_invalid_and_unreachable_addresses() -> None:
    for bad in ("nonsense", "mysql://u:secret@h/d"):
        with pytest.raises(InvalidArgument, match="database_url") as error_info:
            Database(bad)
        assert "secret" not in error_info.value.message
    with pytest.raises(Unavailable, match="cannot use the database") as caught:
        Database(f"postgresql://u:secret@127.0.0.1:{free_ports(1)[0]}/d", patience=0.1)
    assert "secret" not in caught.value.message and isinstance(caught.value, DatabaseLost)


def test_all_servers_of_a_database_share_one_secret(shared: str) -> None:
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
        self.owners: set[str] = set()
        self.databases: list[Database] = []
        self.url = url

    def replica(self, name: str) -> Replica:
        database = Database(self.url, upgrade=False)
        self.databases.append(database)
        return Replica(
            database,
            name,
            owners=lambda: set(self.owners),
            take_over=self.taken.append,
            fenced=lambda: None,
            heartbeat_seconds=1.0,
            lease_seconds=10.0,
            monotonic=lambda: self.now,
        )


def test_a_server_without_heartbeats_is_taken_over_and_fenced(server: Postgres, shared: str) -> None:
    bench = Bench(shared)
    a, b = bench.replica("a"), bench.replica("b")
    bench.owners = {a.id, b.id}
    for bench.now in (0.0, 9.0, 18.0, 27.0):  # both beat: nobody is taken over, however long it takes
        assert a.heartbeat() and b.heartbeat()
    for bench.now in (28.0, 36.9):
        assert b.heartbeat() and bench.taken == []
    with bench.databases[0].begin() as tx:
        sessions.create(tx, "kept", v1.SessionSpec(intent="run"))
        kept = runs.create(tx, "kept", pool="cpu").run.name
        assert runs.claim(tx, kept, a.id)
    with bench.databases[1].begin() as tx:
        assert not runs.claim(tx, kept, b.id), "its holder lives"
        assert runs.orphans(tx) == []
    bench.now = 38.5
    assert b.heartbeat() and bench.taken == [{a.id}]
    with bench.databases[1].begin() as tx:
        assert runs.orphans(tx) == [kept]
        assert runs.claim(tx, kept, b.id)
    with pytest.raises(ExecutorFenced), bench.databases[0].begin() as tx:
        sessions.create(tx, "late", v1.SessionSpec(intent="run"))
    assert not a.heartbeat()
    assert b.heartbeat() and bench.taken == [{a.id}] * 2, "what is still the dead one's is taken at every look"
    bench.owners = {b.id}
    assert b.heartbeat() and b.heartbeat() and len(bench.taken) == 2

    again = bench.replica("a")
    assert again.id != a.id and again.heartbeat()
    again.shutdown()
    bench.owners = {again.id}
    assert b.heartbeat() and bench.taken[-1] == {again.id}, "one that left is taken over from at once"
    twin = bench.replica("b")
    assert not b.heartbeat() and twin.heartbeat(), "a name is one process's: the newer one's"
    for database in bench.databases:
        database.close()


def test_one_of_several_servers_expires_another(shared: str) -> None:
    database = Database(shared, upgrade=False)
    with database.begin() as tx:
        id_ = executors.register(tx, "dying")
        assert executors.heartbeat(tx, id_)
        assert not executors.expire(tx, id_, heartbeats=0), "it beat since"
        assert executors.expire(tx, id_, heartbeats=1) and not executors.expire(tx, id_, heartbeats=1)
        assert not executors.heartbeat(tx, id_)
    database.close()


def test_an_integrity_error_is_aborted(shared: str) -> None:
    database = Database(shared, upgrade=False)
    rows = [{"session": "s", "name": "twice"}] * 2
    with pytest.raises(Aborted), database.begin() as tx:
        tx.execute(sa.insert(METADATA.tables["idempotency_keys"]).values(rows))
    database.close()


async def test_runs_of_expired_servers_and_idle_runs_get_a_trainer(shared: str) -> None:
    """The dead one's at the first look; its own, whose workflow may be another server's, at the second."""
    database = Database(shared, upgrade=False)
    with database.begin() as tx:
        me, living, dead = (executors.register(tx, f"idle-{name}") for name in ("me", "living", "dead"))
        for session, holder in (("mine", me), ("theirs", living), ("orphan", dead)):
            add_session(tx, session)
            add_training(tx, session, "train")
            runs.create(tx, session, pool="cpu", executor=holder)
        executors.expire(tx, dead)
    controller = RunController(database, RunTokens(b"k" * 16), token_seconds=60, max_failures=1, executor=me)
    controller.launcher = trainers = Recorder()
    ours = lambda: sorted(launch.run.split("/")[1] for launch in trainers.launches)  # noqa: E731
    await controller.reconcile()
    assert ours() == ["orphan"]
    await controller.reconcile()
    assert ours() == ["mine", "orphan"]
    await controller.reconcile()
    assert ours() == ["mine", "orphan"]
    await controller.ensure("theirs")
    assert ours() == ["mine", "orphan"], "its server lives"
    database.close()


async def test_one_of_two_servers_creates_the_run(shared: str) -> None:
    first, second = Database(shared, upgrade=False), Database(shared, upgrade=False)
    with first.begin() as tx:
        one, two = (executors.register(tx, f"race-{name}") for name in ("one", "two"))
        add_session(tx, "race")
        add_training(tx, "race", "train")
    launchers = [Recorder(), Recorder()]
    controllers = []
    for database, executor, launcher in ((first, one, launchers[0]), (second, two, launchers[1])):
        created = RunController(database, RunTokens(b"k" * 16), token_seconds=60, max_failures=1, executor=executor)
        created.launcher = launcher
        controllers.append(created)
    await asyncio.gather(*(controller.ensure("race") for controller in controllers for _ in range(4)))
    assert [launch.attempt for launcher in launchers for launch in launcher.launches] == [1]
    with first.begin() as tx:
        assert len(runs.page(tx, "race", limit=9).entries) == 1
    first.close()
    second.close()


async def test_releases_and_new_work_of_two_servers_lose_no_assignment(shared: str) -> None:
    databases = [Database(shared, upgrade=False) for _ in range(2)]
    launcher = Recorder()  # as Kubernetes is to both: one view of what runs
    controllers = []
    with databases[0].begin() as tx:
        add_session(tx, "lease")
        first = add_training(tx, "lease", "first")
        ids = [executors.register(tx, f"lease-{number}") for number in range(2)]
    for database, executor in zip(databases, ids, strict=True):
        controller = RunController(database, RunTokens(b"k" * 16), token_seconds=60, max_failures=1, executor=executor)
        controller.launcher = launcher
        controllers.append(controller)
    await controllers[0].ensure("lease")
    with databases[0].begin() as tx:
        assignments.end(tx, first, v1.ASSIGNMENT_STATE_SUCCEEDED)

    def add(number: int) -> None:
        with databases[number % 2].begin() as tx:
            add_training(tx, "lease", f"a{number}")

    async def ask(number: int) -> None:
        await asyncio.to_thread(add, number)
        await controllers[number % 2].ensure("lease")

    await asyncio.gather(*(controllers[n % 2].release("lease") for n in range(6)), *(ask(n) for n in range(6)))
    with databases[1].begin() as tx:
        live = runs.live(tx, "lease")
        assert len(live) == 1 and len(assignments.open_of(tx, "lease")) == 6
    assert launcher.has_trainer(live[0].run.name, live[0].run.attempt)
    for database in databases:
        database.close()


def disconnect(server: Postgres, url: str) -> None:
    """End all connections to a database, as a restart of PostgreSQL does."""
    query = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE datname = %s"
    with psycopg.connect(server.url(), autocommit=True) as connection:
        ended = connection.execute(query, [url.rpartition("/")[2]]).fetchone()
    assert ended is not None and ended[0] > 0


def test_connections_that_were_idle_are_tried_before_use(
    server: Postgres, shared: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = Database(shared)

    def pool_is_filled() -> None:
        with database.read() as first, database.read() as second:
            assert sessions.counts(first) == sessions.counts(second)

    try:
        pool_is_filled()
        disconnect(server, shared)
        with pytest.raises(DatabaseLost), database.read() as tx:  # used a moment ago
            sessions.counts(tx)
        pool_is_filled()
        disconnect(server, shared)
        monkeypatch.setattr(engine, "_PING_SECONDS", 0.0)
        pool_is_filled()
    finally:
        database.close()
