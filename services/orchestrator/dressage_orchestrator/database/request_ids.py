"""Request ids (AIP-155): a repeated request has one effect and one response."""

from __future__ import annotations

import hashlib

import sqlalchemy as sa
from dressage.errors import AlreadyExists
from google.protobuf.message import Message

from dressage_orchestrator.clock import micros
from dressage_orchestrator.database.engine import Transaction
from dressage_orchestrator.database.tables import REQUEST_IDS


def find(tx: Transaction, method: str, request_id: str, request: Message) -> str | None:
    """Find the resource of an earlier request with the same id; None if there was none.

    :raises AlreadyExists: when the earlier request had other fields.
    """
    if not request_id:
        return None
    tx.lock(f"request/{method}/{request_id}")
    match = (REQUEST_IDS.c.method == method, REQUEST_IDS.c.request_id == request_id)
    row = tx.execute(sa.select(REQUEST_IDS).where(*match)).one_or_none()
    if row is None:
        return None
    if row.request_sha256 != _digest(request):
        message = f"request_id {request_id!r} was used for another {method} request; use a new one"
        raise AlreadyExists(message, reason="REQUEST_ID_REUSED", metadata={"request_id": request_id})
    return str(row.resource)


def record(tx: Transaction, method: str, request_id: str, request: Message, resource: str) -> None:
    """Record the resource of a request."""
    if request_id:
        row = {"method": method, "request_id": request_id, "request_sha256": _digest(request), "resource": resource}
        tx.execute(sa.insert(REQUEST_IDS).values(**row, create_micros=micros(tx.now)))


def _digest(request: Message) -> str:
    return hashlib.sha256(request.SerializeToString(deterministic=True)).hexdigest()
