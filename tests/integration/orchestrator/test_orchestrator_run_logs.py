"""A run's log through the API and the command line: of a trainer process that ran."""

from __future__ import annotations

import asyncio
import sys
from asyncio.subprocess import PIPE, STDOUT
from pathlib import Path

import grpc
import pytest
from dressage.api.v1 import session_pb2 as v1
from dressage.api.v1 import session_service_pb2 as pb
from dressage.rpc_errors import from_rpc
from dressage_orchestrator.launch.tokens import RunTokens

from tests.integration.orchestrator.fakes import GOOD, watch
from tests.integration.orchestrator.stack import Stack

pytestmark = pytest.mark.asyncio

DRESSAGE = str(Path(sys.executable).with_name("dressage"))
RUN = "sessions/logged/runs/r1"


async def test_the_end_of_a_log_comes_through_the_api(stack: Stack) -> None:
    await stack.start()
    reward = v1.RewardSpec(reward_source=GOOD, train_only=True, seeds=1, steps_per_member=1000)
    spec = v1.SessionSpec(intent="run", environment="environments/HalfCheetah-v5", reward=reward)
    await stack.sessions.CreateSession(pb.CreateSessionRequest(spec=spec, session_id="logged"))
    await watch(stack.sessions, "sessions/logged")

    (path,) = (stack.folder / "logs").glob("*.log")
    token = RunTokens(b"k" * 32).make(RUN, 1, expiry=1_900_000_000)
    with path.open("a") as log:
        log.write(f"x{'y' * 300_000}\nDRESSAGE_RUN_TOKEN={token}\nthe last line\n")

    answer = await stack.sessions.ReadRunLog(pb.ReadRunLogRequest(name=RUN))
    assert answer.truncated and len(answer.text) <= 65_536 and answer.text.endswith("the last line\n")
    assert token not in answer.text and token.partition(".")[2] not in answer.text and "[token]" in answer.text
    whole = await stack.sessions.ReadRunLog(pb.ReadRunLogRequest(name=RUN, tail_bytes=1 << 20))
    assert whole.text.startswith("--- attempt 1\n") and not whole.truncated
    short = await stack.sessions.ReadRunLog(pb.ReadRunLogRequest(name=RUN, tail_bytes=5))
    assert short.text == "line\n" and short.truncated

    for arguments, seen in (
        (["list", "logged"], "logged/r1"),
        (["show", "logged/r1"], "default-s0"),
        (["assignments", "logged"], "1/train"),
        (["logs", "logged", "--tail", "14"], "the last line"),
    ):
        command = [DRESSAGE, "runs", *arguments, "--address", stack.service.address]
        process = await asyncio.create_subprocess_exec(*command, stdout=PIPE, stderr=STDOUT)
        messages, _ = await asyncio.wait_for(process.communicate(), 60)
        assert process.returncode == 0 and seen in messages.decode(), messages


async def test_a_missing_log_is_explained(stack: Stack) -> None:
    await stack.start()
    for name, tail, reason in ((RUN, 0, "RUN_NOT_FOUND"), ("sessions/logged", 0, ""), (RUN, 9_000_000, "")):
        with pytest.raises(grpc.aio.AioRpcError) as error:
            await stack.sessions.ReadRunLog(pb.ReadRunLogRequest(name=name, tail_bytes=tail))
        output = from_rpc(error.value)
        assert output.reason == reason or not reason
    reward = v1.RewardSpec(reward_source=GOOD, train_only=True, seeds=1, steps_per_member=1000)
    spec = v1.SessionSpec(intent="run", environment="environments/HalfCheetah-v5", reward=reward)
    await stack.sessions.CreateSession(pb.CreateSessionRequest(spec=spec, session_id="logged"))
    await watch(stack.sessions, "sessions/logged")
    for path in (stack.folder / "logs").glob("*.log"):
        path.unlink()
    with pytest.raises(grpc.aio.AioRpcError) as error:
        await stack.sessions.ReadRunLog(pb.ReadRunLogRequest(name=RUN))
    output = from_rpc(error.value)
    assert output.reason == "RUN_LOG_NOT_FOUND" and "was deleted" in output.message
