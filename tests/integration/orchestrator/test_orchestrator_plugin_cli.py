"""The command line with a plug-in method: found in its environment by the entry point, shown without members or runs."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from dressage.cli.main import invoke

from tests.integration.orchestrator.stack import Stack
from tests.integration.orchestrator.test_orchestrator_plugin_method import PLUGIN, numbers

pytestmark = pytest.mark.asyncio
RUN = ("run", "find the number", "--env", "CartPole-v1", "--yes")


@pytest_asyncio.fixture
async def server(stack: Stack, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Stack]:
    """A server with the plug-in and an author that proposes 1, 2, 3; commands find the server by the environment."""
    monkeypatch.syspath_prepend(str(PLUGIN))
    monkeypatch.setenv("COLUMNS", "180")
    monkeypatch.setenv("DRESSAGE_HOME", str(stack.folder / "home"))
    stack.neighbours.agent.answer = numbers(1, 2, 3)
    await stack.start()
    monkeypatch.setenv("DRESSAGE_ADDRESS", stack.service.address)
    yield stack


async def dressage(*arguments: str, installed: bool = True) -> tuple[int, str, str]:
    """Exit code, output and errors of a command line.

    In a process of its own where it follows a session, which takes signal handlers, or where the plug-in is not installed.
    """
    if installed and not (arguments[0] == "run" and "--detach" not in arguments):
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = await asyncio.to_thread(invoke, arguments)
        return code, out.getvalue(), err.getvalue()
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "dressage.cli.main", *arguments),
        env={**os.environ, "PYTHONPATH": str(PLUGIN) if installed else ""},
        cwd=Path(__file__).parents[3],
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    printed, errors = await asyncio.wait_for(process.communicate(), 90)
    return process.returncode or 0, printed.decode(), errors.decode()


async def document(*arguments: str, installed: bool = True) -> Any:
    code, out, err = await dressage(*arguments, "--json", installed=installed)
    assert code == 0, err
    return json.loads(out)


async def test_a_number_is_found_from_the_command_line(server: Stack) -> None:
    code, out, err = await dressage(*RUN, "--method", "number", "--set", "target=3")
    assert code == 0, err
    assert "method    number; succeeds from a score of 0.7" in out
    assert "settings  target 3.0, scale 1.0" in out
    assert "[1] proposing" in out and "[1] score 0.33, not passed" in out
    assert "[3] score 1.00, passed" in out and "[3] score on fresh seeds 1.00, passed" in out
    assert "succeeded" in out and "1.00 (succeeds from 0.7)" in out

    listed = await document("sessions", "list")
    name = listed["sessions"][0]["name"].partition("/")[2]
    shown = await dressage("sessions", "show", name)
    assert "number 2.0" in shown[1] and "0.50" in shown[1]
    lineage = await dressage("sessions", "lineage", name)
    assert all(score in lineage[1] for score in ("0.33", "0.50", "1.00"))
    diff = await dressage("sessions", "diff", name, "1", "3")
    assert '-  "number": 1.0' in diff[1] and '+  "number": 3.0' in diff[1]
    # Where the plug-in is not installed, its messages are shown by type.
    facts = await document("sessions", "show", name, installed=False)
    assert facts["best_score"] == 1.0 and facts["goal"] == "0.7" and facts["score"] is None
    assert facts["session"]["spec"]["custom"]["value"]["type"] == "tests.NumberSpec"
    assert "1.00" in (await dressage("sessions", "list", installed=False))[1]


async def test_what_the_command_line_and_the_server_refuse(server: Stack) -> None:
    code, _, err = await dressage(*RUN, "--method", "number", "--set", "traget=3", "--detach")
    assert code == 1 and "one of target, start, scale" in err
    code, _, err = await dressage(*RUN, "--method", "number", "--set", "target=three", "--detach")
    assert code == 1 and "--set target: invalid value (got 'three'); expected a number" in err
    code, _, err = await dressage(*RUN, "--method", "number", "--set", "scale=-1", "--detach")
    assert code == 1 and "--set scale: " in err
    code, _, err = await dressage(*RUN, "--method", "number", installed=False)
    assert (
        code == 1
        and "--method: unknown method (got 'number'); expected one of reward, parameters, code, program" in err
    )
    code, _, err = await dressage(*RUN, "--method", "program", "--set", "target=1", "--detach", "--json")
    assert code == 1 and "--env: not supported by the method program" in err


async def test_approve_steer_resume_and_delete_from_the_command_line(server: Stack) -> None:
    options = (
        "--method",
        "number",
        "--set",
        "target=9",
        "--set",
        "start=5",
        "--approve",
        "--iterations",
        "1",
        "--detach",
    )
    begun = await document(*RUN, *options)
    name = begun["session"]["name"].partition("/")[2]

    async def waiting(iteration: int, number: float) -> None:
        """Waits until the iteration's number waits for approval."""
        while True:
            facts = await document("sessions", "show", name)
            proposed = [entry.get("custom", {}).get("number") for entry in facts["iterations"]]
            if facts["session"].get("awaiting_approval") == iteration and proposed[-1] == number:
                return
            await asyncio.sleep(0.1)

    await asyncio.wait_for(waiting(1, 5.0), 60)
    code, _, err = await dressage("sessions", "delete", name)
    assert code == 1 and "add --force" in err
    proposal = server.folder / "proposal.txt"
    proposal.write_text("8.5")
    await document("sessions", "steer", name, "--proposal", str(proposal))
    await asyncio.wait_for(waiting(1, 8.5), 60)
    await document("sessions", "approve", name, "--note", "go")
    code, out, _ = await dressage("sessions", "watch", name)
    assert code == 0 and "[1] score 0.67, not passed" in out and "exhausted" in out
    await document("sessions", "resume", name, "--iterations", "1")
    await asyncio.wait_for(waiting(2, 1.0), 60)
    await document("sessions", "cancel", name)
    await dressage("sessions", "watch", name)
    assert (await document("sessions", "show", name))["state"] == "cancelled"
    await document("sessions", "delete", name)
    assert not (await document("sessions", "list"))["sessions"]
