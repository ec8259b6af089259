"""Exit codes of a trainer's process. How an assignment ends is its result, never the process's exit code."""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """What the end of the process says to its launcher."""

    DONE = 0
    """The lease was given back or stopped."""
    FAILED = 1
    """There is no orchestrator, or it refuses the trainer."""
    CHECKPOINTED = 75
    """SIGTERM or the deadline: a later attempt resumes from the checkpoint."""
