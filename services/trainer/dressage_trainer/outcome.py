"""How an assignment, and with it the trainer's process, ends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

from dressage.api.v1.session_pb2 import Failure


class ExitCode(IntEnum):
    """What the process's end tells its launcher."""

    DONE = 0
    FAILED = 1
    GENERATED_CODE = 42
    """The generated code is to blame: another attempt would end the same way."""
    CHECKPOINTED = 75
    """Told to leave (SIGTERM); a later attempt goes on from the checkpoint."""


@dataclass(frozen=True)
class Outcome:
    """How an assignment ended.

    :param report: whether the orchestrator is told that the assignment failed; a crash is not reported, so that
        another attempt follows.
    """

    code: ExitCode
    done: bool = False
    reason: str = ""
    message: str = ""
    report: bool = False
    env_steps: int = 0
    tail: str = ""

    @classmethod
    def finished(cls, env_steps: int) -> Outcome:
        """All done."""
        return cls(ExitCode.DONE, done=True, env_steps=env_steps)

    @classmethod
    def stopped(cls, reason: str) -> Outcome:
        """Told to stop by the orchestrator."""
        return cls(ExitCode.DONE, reason="STOPPED", message=reason)

    @classmethod
    def interrupted(cls) -> Outcome:
        """Told to leave by a signal."""
        return cls(ExitCode.CHECKPOINTED, reason="INTERRUPTED", message="told to leave by a signal")

    @classmethod
    def failed(cls, reason: str, message: str, *, generated_code: bool, tail: str = "") -> Outcome:
        """Failed in a way that another attempt would repeat."""
        code = ExitCode.GENERATED_CODE if generated_code else ExitCode.FAILED
        return cls(code, reason=reason, message=message, report=True, tail=tail)

    @classmethod
    def none_left(cls, failures: Sequence[Failure]) -> Outcome:
        """All members were stopped, for these causes; the generated code's doing if any was the reward."""
        of_reward = [failure for failure in failures if failure.reason.startswith("REWARD")]
        message = f"no member could go on: {[*of_reward, *failures][0].message}"
        return cls.failed("ALL_MEMBERS_STOPPED", message, generated_code=bool(of_reward))

    @classmethod
    def crashed(cls, message: str, *, tail: str = "") -> Outcome:
        """Failed in a way that another attempt may not repeat."""
        return cls(ExitCode.FAILED, reason="LEARNER_CRASHED", message=message, tail=tail)
