"""Kills this process with SIGKILL in a session's workflow, once, at the moment between work and its record.

This is the worst moment: the effects of the step have happened, and nothing is recorded. `install` reads environment variables:

- ``KILL_FOLDER``: every step's name is appended to its ``steps.log``; a file ``killed`` in it records the kill, so that
  the next process lives.
- ``KILL_STEP``: the step to die in, after its work and before its record: its number (from 1) or its name.
- ``KILL_REPLY``: the number (from 1) of llm-agent's result to die after, before anything is done with it; 0 or unset: none.
"""

from __future__ import annotations

import itertools
import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

_lock = threading.Lock()


def install() -> None:
    """Wrap the steps of all workflows of this process, and its calls of llm-agent."""
    from dressage_orchestrator.clients import AgentClient
    from dressage_orchestrator.lifecycle.context import SessionContext

    folder, step = Path(os.environ["KILL_FOLDER"]), os.environ.get("KILL_STEP", "0")
    wanted_reply = int(os.environ.get("KILL_REPLY", "0"))
    result_of, converse = SessionContext._result, AgentClient.converse
    replies = itertools.count(1)

    def counted(self: SessionContext, name: str, work: Callable[[], Any]) -> Any:
        result = result_of(self, name, work)
        if name.startswith(("poll:", "approval-poll:")):  # while it waits: how many there are is a matter of time
            return result
        with _lock:
            log = folder / "steps.log"
            with log.open("a") as file:
                file.write(f"{name}\n")
            if step in (name, str(len(log.read_text().splitlines()))):
                _die_once(folder, name)
        return result

    async def answered(self: AgentClient, task: Any, *arguments: Any, **options: Any) -> Any:
        result = await converse(self, task, *arguments, **options)
        if next(replies) == wanted_reply:
            _die_once(folder, task.key)
        return result

    SessionContext._result = counted  # type: ignore[method-assign]
    AgentClient.converse = answered  # type: ignore[method-assign]


def _die_once(folder: Path, moment: str) -> None:
    if not (folder / "killed").exists():
        (folder / "killed").write_text(moment)
        os.kill(os.getpid(), signal.SIGKILL)


def steps(folder: Path) -> list[str]:
    """The steps that were done, in order."""
    return (folder / "steps.log").read_text().splitlines()
