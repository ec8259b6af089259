"""Repeated steps and repeated requests have one effect.

A step is repeated if the process dies between its transaction and the record of its result. Effects that must not be
repeated (an event, an increment) are therefore recorded under a key. A request has a request id (AIP-155), so a repeated one
has one effect and one response. Request ids are those of their principal: another one that sends the same id makes another
request.
"""

from __future__ import annotations

import hashlib
from dataclasses import asdict, dataclass

import sqlalchemy as sa
from dressage.errors import AlreadyExists
from google.protobuf.message import Message
from sqlalchemy.dialects import postgresql, sqlite

from dressage_orchestrator import resource_names
from dressage_orchestrator.clock import micros
from dressage_orchestrator.database.engine import ReadTransaction, Transaction
from dressage_orchestrator.database.tables import IDEMPOTENCY_KEYS, REQUEST_IDS

_FIND = sa.select(IDEMPOTENCY_KEYS.c.name).where(
    IDEMPOTENCY_KEYS.c.session == sa.bindparam("session"), IDEMPOTENCY_KEYS.c.name == sa.bindparam("name")
)
_NAME = IDEMPOTENCY_KEYS.c.name
_INSERT = {
    "sqlite": sqlite.insert(IDEMPOTENCY_KEYS).on_conflict_do_nothing().returning(_NAME),
    "postgresql": postgresql.insert(IDEMPOTENCY_KEYS).on_conflict_do_nothing().returning(_NAME),
}


def exists(tx: ReadTransaction, session: str, name: str) -> bool:
    """Whether the key is recorded."""
    return tx.execute(_FIND, {"session": session, "name": name}).one_or_none() is not None


def record(tx: Transaction, session: str, name: str) -> bool:
    """Record the key in this transaction; whether it is new."""
    tx.lock(resource_names.session_name(session))
    insert = _INSERT[tx.connection.dialect.name]
    return tx.execute(insert, {"session": session, "name": name}).one_or_none() is not None


@dataclass(frozen=True)
class RequestKey:
    """What identifies a repeated request.

    :param principal: name of the caller; empty on a server without authentication.
    :param method: name of the RPC.
    :param request_id: of the request; empty: it is not recognised when it is repeated.
    """

    principal: str
    method: str
    request_id: str


def find_request(tx: Transaction, key: RequestKey, request: Message) -> str | None:
    """Find the resource of an earlier request with the same key; None if there was none.

    :raises AlreadyExists: when the earlier request had other fields.
    """
    if not key.request_id:
        return None
    tx.lock(f"request/{key.principal}/{key.method}/{key.request_id}")
    match = [REQUEST_IDS.c[name] == value for name, value in asdict(key).items()]
    row = tx.execute(sa.select(REQUEST_IDS).where(*match)).one_or_none()
    if row is None:
        return None
    if row.request_sha256 != _digest(request):
        message = f"request_id {key.request_id!r} was used for another {key.method} request; use a new one"
        raise AlreadyExists(message, reason="REQUEST_ID_REUSED", metadata={"request_id": key.request_id})
    return str(row.resource)


def record_request(tx: Transaction, key: RequestKey, request: Message, resource: str) -> None:
    """Record the resource of a request."""
    if key.request_id:
        row = {**asdict(key), "request_sha256": _digest(request), "resource": resource}
        tx.execute(sa.insert(REQUEST_IDS).values(**row, create_micros=micros(tx.now)))


def _digest(request: Message) -> str:
    # Deterministic: the order of maps varies, and a repeated request must have the same digest.
    return hashlib.sha256(request.SerializeToString(deterministic=True)).hexdigest()
