"""What a database records about itself: its schema, the version that made it, when, and the latest time it has seen.

Before the first release there are no migrations: a database whose tables differ from this version's is refused before the first
query, with what to do, instead of failing in the middle of a session with a missing column.
"""

from __future__ import annotations

import hashlib
from importlib.metadata import version

import sqlalchemy as sa
from dressage.errors import FailedPrecondition

from dressage_orchestrator.database.tables import METADATA, STAMPS

FORMAT = 1
"""Form of the stored messages. Raise it with a change after which stored messages cannot be read."""
_SCHEMA, _VERSION, _CREATED, _CLOCK = "schema", "version", "create_micros", "clock_micros"


def schema() -> str:
    """Identify the tables of this version, from their columns, types and keys, and the form of the stored messages."""
    lines = [
        f"{table.name}.{column.name} {type(column.type).__name__} {getattr(column.type, 'length', None)} "
        f"{column.nullable} {column.primary_key}"
        for table in METADATA.sorted_tables
        for column in table.columns
    ]
    return hashlib.sha256("\n".join([str(FORMAT), *sorted(lines)]).encode()).hexdigest()[:12]


def write(connection: sa.Connection, *, now: int) -> None:
    """Stamp a new database.

    :param now: in microseconds since the epoch.
    """
    values = {_SCHEMA: schema(), _VERSION: version("dressage"), _CREATED: str(now), _CLOCK: str(now)}
    connection.execute(sa.insert(STAMPS), [{"name": name, "value": value} for name, value in values.items()])


def is_new(connection: sa.Connection) -> bool:
    """Whether the database has none of this project's tables."""
    return not {*METADATA.tables, "alembic_version"} & set(sa.inspect(connection).get_table_names())


def require_same(connection: sa.Connection) -> None:
    """Refuse a database of other tables.

    :raises FailedPrecondition: ``DATABASE_OTHER_VERSION``, with the versions and a remedy.
    """
    values: dict[str, str] = {}
    if STAMPS.name in sa.inspect(connection).get_table_names():
        values = {row.name: row.value for row in connection.execute(sa.select(STAMPS))}
    if values.get(_SCHEMA) == schema():
        return
    writer = values.get(_VERSION, "of development, without a stamp")
    message = (
        f"the database was written by another version of dressage ({writer}, schema {values.get(_SCHEMA, 'unknown')}); this is "
        f"{version('dressage')} with schema {schema()}, and there are no migrations before the first release. Use the version "
        "that wrote it, for example for `dressage export` of its policies, or start with another data folder (--data-dir) "
        "or database"
    )
    raise FailedPrecondition(message, reason="DATABASE_OTHER_VERSION")


def create_micros(connection: sa.Connection) -> int:
    """When the database was made, in microseconds since the epoch."""
    return _number(connection, _CREATED)


def clock_micros(connection: sa.Connection) -> int:
    """The latest time that the database has seen, in microseconds since the epoch."""
    return _number(connection, _CLOCK)


def set_clock(connection: sa.Connection, now: int) -> None:
    """Record the latest time that the database has seen."""
    connection.execute(sa.update(STAMPS).where(STAMPS.c.name == _CLOCK).values(value=str(now)))


def _number(connection: sa.Connection, name: str) -> int:
    return int(connection.execute(sa.select(STAMPS.c.value).where(STAMPS.c.name == name)).scalar_one())
