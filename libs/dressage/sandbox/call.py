"""One question to a sandboxed process, one answer, and it is gone."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from dressage.errors import DeadlineExceeded, DressageError, InvalidArgument
from dressage.sandbox.limits import Limits
from dressage.sandbox.pipe import MAX_BYTES, ChannelClosed, Message, ProtocolError
from dressage.sandbox.process import SandboxProcess


class SandboxFailure(DressageError):
    """A one-shot sandboxed call brought no answer; ``kind`` as in `Exit`, or "protocol" for a malformed answer."""

    default_reason = "SANDBOX_FAILURE"

    def __init__(self, kind: str, message: str, stderr_tail: str = "") -> None:
        super().__init__(message, metadata={"kind": kind})
        self.kind = kind
        self.stderr_tail = stderr_tail


def run(
    target: str,
    request: Mapping[str, Any],
    *,
    limits: Limits,
    scratch: Path,
    read_only: Sequence[Path] = (),
    threads: int = 1,
    cpus: Iterable[int] | None = None,
    env: Mapping[str, str] | None = None,
    max_message_bytes: int = MAX_BYTES,
    allow_unsandboxed: bool = False,
) -> Message:
    """Start ``target``, send it one request, return its one reply, and end it.

    ``limits.wall_seconds`` must be given: it is the deadline of the call. Other arguments as in `SandboxProcess.start`.

    :raises SandboxFailure: no valid reply came; ``kind`` says why.
    """
    if limits.wall_seconds is None:
        raise InvalidArgument(field="limits.wall_seconds", value=None, expected="the call's deadline in seconds")
    process = SandboxProcess.start(
        target,
        limits=limits,
        scratch=scratch,
        read_only=read_only,
        threads=threads,
        cpus=cpus,
        env=env,
        max_message_bytes=max_message_bytes,
        allow_unsandboxed=allow_unsandboxed,
    )
    # The watcher ends the process at the deadline, which closes the channel; the margin is for the ending itself.
    margin = limits.wall_seconds + 10.0
    with process:
        try:
            process.channel.send(request, timeout=margin)
            return process.channel.recv(timeout=margin)
        except ProtocolError as error:
            ended = process.kill()
            raise SandboxFailure("protocol", error.message, ended.stderr_tail) from error
        except DeadlineExceeded as error:
            ended = process.kill()
            raise SandboxFailure("timeout", error.message, ended.stderr_tail) from error
        except ChannelClosed:
            ended = process.wait(math.ceil(margin)) or process.kill()
            if ended.kind == "ok":
                raise SandboxFailure("error", "it ended without an answer", ended.stderr_tail) from None
            raise SandboxFailure(ended.kind, ended.reason, ended.stderr_tail) from None
