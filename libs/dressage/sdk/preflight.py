"""What is checked before a session exists, so that a request that cannot succeed leaves no failed session.

The server validates the spec. This module adds what the server learns only when the session runs: whether the built-in author
understands the intent, and whether this process's trainers have the packages of the backend.
"""

from __future__ import annotations

from dressage import errors
from dressage.api.v1 import session_pb2 as pb
from dressage.api.v1 import session_service_pb2 as sessions_pb
from dressage.installation import has_sb3, install_command
from dressage.local.connection import Connection
from dressage.sdk.methods import REWARD

TEMPLATE = "template/v1"
"""The built-in author, which needs no language model."""

_LISTED = 5


async def check(spec: pb.SessionSpec, connection: Connection) -> sessions_pb.EstimateSessionResponse:
    """Check that a session can begin and return its estimate.

    :raises InvalidArgument: for an invalid spec, or an intent that the built-in author does not understand.
    :raises FailedPrecondition: if the trainers of this process lack a package of the backend.
    """
    estimate = await connection.client.estimate_session(spec)
    full = estimate.spec
    _check_backend(full, connection)
    if _template_writes(full, estimate.method or REWARD):
        # The author reads every word of an intent to propose criteria, as it does to write a reward.
        await connection.client.elicit(full.intent, full.environment.removeprefix("environments/"), model=TEMPLATE)
    return estimate


def _check_backend(spec: pb.SessionSpec, connection: Connection) -> None:
    if spec.reward.backend == "sb3" and connection.kind == "stack" and not has_sb3():
        message = (
            f"the backend sb3 needs torch and stable-baselines3, which are not installed: {install_command('sb3')}"
        )
        raise errors.FailedPrecondition(message, reason="MISSING_PACKAGE")


def _template_writes(spec: pb.SessionSpec, method: str) -> bool:
    """Return whether the built-in author writes the reward or the judge of a session."""
    reward = spec.reward
    if spec.model != TEMPLATE or method != REWARD or reward.train_only:
        return False
    return not (reward.reward_source and spec.judge_source)


async def interrupted_sessions(connection: Connection) -> list[str]:
    """Return the names of sessions of the data folder that an earlier process has left, newest first, at most five."""
    if connection.kind != "stack":
        return []
    names: list[str] = []
    async for session in connection.client.list_sessions():
        if session.state in (pb.SESSION_STATE_PENDING, pb.SESSION_STATE_RUNNING):
            names.append(session.name)
        if len(names) == _LISTED:
            break
    return names
