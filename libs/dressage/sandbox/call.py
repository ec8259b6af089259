"""Runs one request in a sandboxed process of its own."""

from __future__ import annotations

import math
import signal
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from dressage.errors import DeadlineExceeded, DressageError, InvalidArgument
from dressage.sandbox.limits import Limits
from dressage.sandbox.pipe import MAX_BYTES, ChannelClosed, Message, ProtocolError
from dressage.sandbox.process import SandboxProcess

ENTERS_CODE: Mapping[str, Any] = {"enters": "code"}
"""Sent once by a target before it runs generated code: what comes after it is that code's doing, what comes before is not."""
_ENDING_SIGNALS = (signal.SIGKILL, signal.SIGTERM)
"""Signals by which a process ends another one; sandboxed code can send none."""


class SandboxFailure(DressageError):
    """A sandboxed call returned no valid reply; ``kind`` as in `Exit`, or "protocol" for a malformed reply.

    :param outside: whether something outside of the sandbox ended it by a signal; another attempt may succeed.
    :param entered: whether it had sent `ENTERS_CODE`.
    """

    default_reason = "SANDBOX_FAILURE"

    def __init__(
        self, kind: str, message: str, stderr_tail: str = "", *, outside: bool = False, entered: bool = False
    ) -> None:
        super().__init__(message, metadata={"kind": kind})
        self.kind = kind
        self.stderr_tail = stderr_tail
        self.outside, self.entered = outside, entered


def run(
    target: str,
    request: Mapping[str, Any],
    *,
    limits: Limits,
    scratch: Path,
    read_only: Sequence[Path] = (),
    hidden: Sequence[Path] = (),
    threads: int = 1,
    cpus: Iterable[int] | None = None,
    env: Mapping[str, str] | None = None,
    max_message_bytes: int = MAX_BYTES,
    max_reply_bytes: int = MAX_BYTES,
    allow_unsandboxed: bool = False,
) -> Message:
    """Start ``target``, send it one request, return its reply, and end it.

    ``limits.wall_seconds`` is required: with ``limits.starved_seconds`` it is the deadline of the call. Other arguments as in
    `SandboxProcess.start`.

    :raises SandboxFailure: there is no valid reply; ``kind`` is the cause.
    :raises DeadlineExceeded: the machine is overloaded (``MACHINE_OVERLOADED``); the same call may succeed later.
    """
    if limits.wall_seconds is None:
        raise InvalidArgument(field="limits.wall_seconds", value=None, expected="the deadline of the call in seconds")
    process = SandboxProcess.start(
        target,
        limits=limits,
        scratch=scratch,
        read_only=read_only,
        hidden=hidden,
        threads=threads,
        cpus=cpus,
        env=env,
        max_message_bytes=max_message_bytes,
        max_reply_bytes=max_reply_bytes,
        allow_unsandboxed=allow_unsandboxed,
    )
    # The monitor ends the process at the deadline, which closes the channel; the margin covers the time to end it.
    margin = max(limits.wall_seconds, limits.starved_seconds or 0.0) + 10.0
    entered = False
    with process:
        try:
            process.channel.send(request, timeout=margin)
            reply = process.channel.recv(timeout=margin)
            if reply.keys() == ENTERS_CODE.keys():
                entered = True
                reply = process.channel.recv(timeout=margin)
            return reply
        except ProtocolError as error:
            ended = process.kill()
            raise SandboxFailure("protocol", error.message, ended.stderr_tail, entered=entered) from error
        except DeadlineExceeded as error:
            ended = process.kill()
            raise SandboxFailure("timeout", error.message, ended.stderr_tail, entered=entered) from error
        except ChannelClosed:
            ended = process.wait(math.ceil(margin)) or process.kill()
            if ended.kind == "ok":
                raise SandboxFailure("error", "it ended without a reply", ended.stderr_tail, entered=entered) from None
            if ended.kind == "starved":
                message = f"the machine is overloaded: {ended.reason}. End other programs, or try again later"
                raise DeadlineExceeded(message, reason="MACHINE_OVERLOADED") from None
            # A signal that no limit explains came from outside; blamed on the code, its author would mend what works.
            outside = ended.kind == "killed" and not ended.bound and -ended.code in _ENDING_SIGNALS
            raise SandboxFailure(
                ended.kind, ended.reason, ended.stderr_tail, outside=outside, entered=entered
            ) from None
