"""``python -m dressage_trainer``: one run's trainer."""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import sys
import time

from dressage.sandbox.scratch import scratch_folder
from dressage.serving import logs
from pydantic import ValidationError
from pydantic_settings import CliApp

from dressage_trainer.settings import TrainerSettings, take_token_from_environment

_BEGAN = time.monotonic()
_PR_SET_PDEATHSIG = 1


def _die_with_parent(parent: int) -> None:
    """Have the kernel end this process when its parent ends (Linux), and exit if the parent has ended already."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        raise SystemExit(1)


def main() -> int:
    """Read the settings, run the supervisor and return the exit status."""
    try:
        settings = CliApp.run(TrainerSettings)
    except ValidationError as error:
        for problem in error.errors(include_input=False):
            print(f"trainer setting {'.'.join(map(str, problem['loc']))}: {problem['msg']}", file=sys.stderr)
        return 2
    take_token_from_environment()
    if settings.parent_pid is not None:
        _die_with_parent(settings.parent_pid)
    logs.configure(format=settings.log_format, level=settings.log_level)
    from dressage_trainer.supervisor import supervise

    with logs.bind(run=settings.run, attempt=str(settings.effective_attempt)):
        if settings.scratch is not None:
            settings.scratch.mkdir(parents=True, exist_ok=True)
            return int(asyncio.run(supervise(settings, settings.scratch, began=_BEGAN)))
        with scratch_folder(prefix="dressage-run-") as scratch:
            return int(asyncio.run(supervise(settings, scratch, began=_BEGAN)))


if __name__ == "__main__":
    sys.exit(main())
