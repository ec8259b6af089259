"""The command line with a plug-in method: found in its environment by the entry point, shown without members or runs."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tests.integration.orchestrator.stack import Stack
from tests.integration.orchestrator.test_orchestrator_plugin_method import PLUGIN, numbers

pytestmark = pytest.mark.asyncio
RUN = ("run", "find the number", "--env", "CartPole-v1", "--yes")


@pytest_asyncio.fixture
async def server(stack: Stack, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Stack]:
    """A server with the plug-in and an author that proposes 1, 2, 3."""
    monkeypatch.syspath_prepend(str(PLUGIN))
    stack.neighbours.agent.answer = numbers(1, 2, 3)
    await stack.start()
    yield stack


async def dressage(server: Stack, *arguments: str, installed: bool = True) -> tuple[int, str, str]:
    """Exit code, output and errors of a command line in a process of its own.

    :param installed: whether the plug-in is installed where the command runs.
    """
    environment = {**os.environ, "COLUMNS": "180", "DRESSAGE_HOME": str(server.folder / "home")}
    environment |= {"DRESSAGE_ADDRESS": server.service.address, "PYTHONPATH": str(PLUGIN) if installed else ""}
    command = [sys.executable, "-m", "dressage.cli.main", *arguments]
    process = await asyncio.create_subprocess_exec(
        *command, env=environment, cwd=Path(__file__).parents[3], stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )  # fmt: skip
    out, err = await asyncio.wait_for(process.communicate(), 90)
    return process.returncode or 0, out.decode(), err.decode()


async def document(server: Stack, *arguments: str, installed: bool = True) -> Any:
    code, out, err = await dressage(server, *arguments, "--json", installed=installed)
    assert code == 0, err
    return json.loads(out)


async def test_a_number_is_found_from_the_command_line(server: Stack) -> None:
    code, out, err = await dressage(server, *RUN, "--method", "number", "--set", "target=3")
    assert code == 0, err
    assert "method    number, target 3.0, scale 1.0; succeeds from a score of 0.7" in out
    assert "[1] proposing" in out and "[1] score 0.33, not yet" in out
    assert "[3] score 1.00, passed" in out and "[3] score on fresh seeds 1.00, passed" in out
    assert "succeeded" in out and "1.00 (succeeds from 0.7)" in out

    listed = await document(server, "sessions", "list")
    name = listed["sessions"][0]["name"].partition("/")[2]
    shown = await dressage(server, "sessions", "show", name)
    assert "number 2.0" in shown[1] and "0.50" in shown[1]
    lineage = await dressage(server, "sessions", "lineage", name)
    assert all(score in lineage[1] for score in ("0.33", "0.50", "1.00"))
    diff = await dressage(server, "sessions", "diff", name, "1", "3")
    assert '-  "number": 1.0' in diff[1] and '+  "number": 3.0' in diff[1]
    # Where the plug-in is not installed, its messages are shown by type.
    facts = await document(server, "sessions", "show", name, installed=False)
    assert facts["best_score"] == 1.0 and facts["goal"] == "0.7" and facts["score"] is None
    assert facts["session"]["spec"]["custom"]["value"]["type"] == "tests.NumberSpec"
    assert "1.00" in (await dressage(server, "sessions", "list", installed=False))[1]


async def test_what_the_command_line_and_the_server_refuse(server: Stack) -> None:
    code, _, err = await dressage(server, *RUN, "--method", "number", "--set", "traget=3")
    assert code == 1 and "one of target, start, scale" in err
    code, _, err = await dressage(server, *RUN, "--method", "number", "--set", "target=three")
    assert code == 1 and "--set target: got 'three', expected a number" in err
    code, _, err = await dressage(server, *RUN, "--method", "number", "--set", "scale=-1")
    assert code == 1 and "spec.custom.scale" in err
    code, _, err = await dressage(server, *RUN, "--method", "number", installed=False)
    assert code == 1 and "--method: got 'number', expected one of reward, parameters, code, program" in err
    code, out, _ = await dressage(server, *RUN, "--method", "parameters", "--set", "target=1", "--json")
    assert code == 1 and json.loads(out)["error"]["reason"] == "METHOD_NOT_AVAILABLE"


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
    begun = await document(server, *RUN, *options)
    name = begun["session"]["name"].partition("/")[2]

    async def waiting(number: int) -> None:
        while (await document(server, "sessions", "show", name))["session"].get("awaiting_approval") != number:
            pass  # each look takes a second

    await asyncio.wait_for(waiting(1), 60)
    proposal = server.folder / "proposal.txt"
    proposal.write_text("8.5")
    await document(server, "sessions", "steer", name, "--proposal", str(proposal))
    await document(server, "sessions", "approve", name, "--note", "go")
    code, out, _ = await dressage(server, "sessions", "watch", name)
    assert code == 0 and "[1] score 0.67, not yet" in out and "exhausted" in out
    await document(server, "sessions", "resume", name, "--iterations", "1")
    await asyncio.wait_for(waiting(2), 60)
    await document(server, "sessions", "cancel", name)
    await dressage(server, "sessions", "watch", name)
    assert (await document(server, "sessions", "show", name))["state"] == "cancelled"
    await document(server, "sessions", "delete", name)
    assert not (await document(server, "sessions", "list"))["sessions"]
