"""Loading policies: from a folder, a file, bytes, or the session that trained them."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

from dressage import errors
from dressage.api.v1 import session_pb2
from dressage.client.loop import run_blocking
from dressage.local.connection import Connection, ServerOptions, connect
from dressage.policies import (
    Policy,
    ProgramPolicy,
    code_from_bytes,
    from_bytes,
    is_code,
    is_code_bytes,
    is_program,
    is_program_bytes,
    load_code,
    load_program,
    program_from_bytes,
)
from dressage.policies import load as load_bundle
from dressage.sdk.argument_names import python_names
from dressage.sdk.arguments import preserved_logging, server_options
from dressage.sdk.code_policy import SandboxedPolicy
from dressage.sdk.texts import origin_text


def load(
    policy: str | bytes | os.PathLike[str],
    *,
    address: str | None = None,
    token: str | None = None,
    data_dir: str | os.PathLike[str] | None = None,
) -> Policy | SandboxedPolicy | ProgramPolicy:
    """Load a policy. ``policy.predict(observation)`` works as in Stable-Baselines3; nothing in a bundle executes here.

    A code policy acts in a sandboxed process of its own; use it as a context manager, or close it. The `predict` of a program
    raises FailedPrecondition, as it perceives tests instead of observations; `dressage.evaluate` plays it.

    :param policy: folder of a bundle, a ``.zip`` file of ``Policy.save``, the bytes of one, or the name of a session,
        whose best policy it is then.
    :param address: server of the session; by default ``$DRESSAGE_ADDRESS``, else this machine's data folder.
    :param token: bearer token for the server; by default ``$DRESSAGE_TOKEN``.
    :param data_dir: data folder of this machine; by default ``$DRESSAGE_HOME``, else the platform's folder.
    :raises NotFound: for a path or a session that does not exist.
    :raises FailedPrecondition: for a session without a policy.
    :raises InvalidArgument: for a damaged bundle.
    """
    if isinstance(policy, bytes):
        if is_program_bytes(policy):
            return program_from_bytes(policy)
        return SandboxedPolicy(code_from_bytes(policy)) if is_code_bytes(policy) else from_bytes(policy)
    text = os.fspath(policy)
    path = Path(text).expanduser()
    if path.suffix == ".zip" or isinstance(policy, os.PathLike):
        if not path.exists():
            raise errors.NotFound(f"policy: there is no file or folder {text!r}")
        return load_path(path)
    server = server_options(address=address, token=token, data_dir=data_dir)

    async def work() -> Policy | SandboxedPolicy | ProgramPolicy:
        async with open_bundle(text, server) as opened:
            return load_path(opened.folder)

    with python_names(), preserved_logging():
        return run_blocking(work())


def load_path(path: Path) -> Policy | SandboxedPolicy | ProgramPolicy:
    """Load a bundle of any kind.

    :param path: its folder, or a ``.zip`` file.
    :raises NotFound: if a file of the bundle is missing.
    :raises InvalidArgument: for a damaged bundle.
    """
    if is_program(path):
        return load_program(path)
    return SandboxedPolicy(load_code(path)) if is_code(path) else load_bundle(path)


def best_policy(session: session_pb2.Session) -> str:
    """Return the artifact prefix of a session's best policy.

    :raises FailedPrecondition: if the session has none.
    """
    if not session.best_policy:
        raise errors.FailedPrecondition(f"{session.name} has no policy yet", reason="NO_POLICY")
    return session.best_policy


class Bundle(NamedTuple):
    """A bundle's folder, and where the policy is from; empty if no session is named."""

    folder: Path
    origin: str = ""


@asynccontextmanager
async def open_bundle(bundle: str, server: ServerOptions) -> AsyncIterator[Bundle]:
    """The bundle that is named, or that of a session's best policy.

    :raises NotFound: if the text names neither.
    """
    path = Path(bundle).expanduser()
    if path.is_dir() or path.is_file():
        yield Bundle(path if path.is_dir() else path.parent)
        return
    if "/" in bundle.removeprefix("sessions/") or "." in bundle:
        raise errors.NotFound(f"policy: {bundle!r} is no folder of a policy bundle and no session's id")
    async with connect(server) as connection:
        session = await connection.client.get_session(bundle)
        async with policy_folder(session, connection) as folder:
            yield Bundle(folder, origin_text(session))


@asynccontextmanager
async def policy_folder(session: session_pb2.Session, connection: Connection) -> AsyncIterator[Path]:
    """The folder of the bundle of a session's best policy; a copy of a server's is removed at the end.

    :raises FailedPrecondition: if the session has none.
    """
    policy = best_policy(session)
    local = connection.local_path(policy)
    if local is not None:
        yield local
        return
    scratch = Path(tempfile.mkdtemp(prefix="dressage-policy-"))
    try:
        await connection.client.download_artifacts(policy, scratch)
        yield scratch
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
