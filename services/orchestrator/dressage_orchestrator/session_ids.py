"""Ids of new sessions: random ones, and those that a caller chooses."""

from __future__ import annotations

import secrets
from functools import partial

from dressage.artifacts import ArtifactStore
from dressage.errors import AlreadyExists, Unavailable

from dressage_orchestrator import resource_names, threads

STORE_FAILED = "ARTIFACT_STORE_FAILED"
"""Reason of a session that is not created because the artifact store is unavailable."""

_ALPHABET = "abcdefghijkmnpqrstuvwxyz23456789"


def random_id() -> str:
    """Return an id that no other session has."""
    return "s-" + "".join(secrets.choice(_ALPHABET) for _ in range(10))


async def has_artifacts(store: ArtifactStore, session: str) -> bool:
    """Return whether artifacts of an earlier session have this id, which would become the new owner's.

    :raises Unavailable: with the reason `STORE_FAILED`.
    """
    prefix = f"{resource_names.session_name(session)}/"
    try:
        return bool(await threads.run(threads.REQUESTS, partial(store.page, prefix, limit=1)))
    except Unavailable as error:
        raise Unavailable(error.message, reason=STORE_FAILED) from error


def conflict(session: str) -> AlreadyExists:
    """Return the error for an id that has artifacts."""
    message = f"session_id {session!r}: artifacts of an earlier session exist; choose another id"
    return AlreadyExists(message, reason="SESSION_ID_USED", metadata={"session": session})
