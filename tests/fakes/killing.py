"""Kills this process with SIGKILL at a step of a session's workflow: once, at the moment between a step's work and its record.

That is the worst moment: everything that the step did has happened, and nothing says so. `install` reads two variables:
``KILL_FOLDER``, where every step's name is appended to ``steps.log``, and ``KILL_STEP``, the number (from 1) of the step to die
in; a file ``killed`` in the folder says that it was done, so that the next process lives.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

_lock = threading.Lock()


def install() -> None:
    """Wraps the steps of all workflows of this process."""
    from dressage_orchestrator.lifecycle.context import SessionContext

    folder, wanted = Path(os.environ["KILL_FOLDER"]), int(os.environ.get("KILL_STEP", "0"))
    result_of = SessionContext._result

    def counted(self: SessionContext, name: str, work: Callable[[], Any]) -> Any:
        result = result_of(self, name, work)
        if name.startswith(("look:", "approval-look:")):  # while it waits: how many there are is a matter of time
            return result
        with _lock:
            log = folder / "steps.log"
            with log.open("a") as file:
                file.write(f"{name}\n")
            number = len(log.read_text().splitlines())
            if number == wanted and not (folder / "killed").exists():
                (folder / "killed").write_text(name)
                os.kill(os.getpid(), signal.SIGKILL)
        return result

    SessionContext._result = counted  # type: ignore[method-assign]


def steps(folder: Path) -> list[str]:
    """The steps that were done, in order."""
    return (folder / "steps.log").read_text().splitlines()
