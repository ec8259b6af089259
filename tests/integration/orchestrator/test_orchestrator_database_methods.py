"""An error of SQLite in any statement of a session of the methods `parameters`, `code` and `program`, in both databases.

The session ends as it would without the error, and no reply of the provider is bought twice. Real llm-agent and a scripted
provider; the trainer is this folder's stand-in, for `program` the real one. `test_orchestrator_database_errors.py` has the
method `reward`.
"""

from __future__ import annotations

import asyncio
import sqlite3
from typing import Any

import pytest
from dressage.api.v1 import session_pb2 as v1
from dressage.api.v1 import session_service_pb2 as pb
from search_authors import SearchAuthors

from tests.integration.orchestrator import test_orchestrator_code_killed as code_killed
from tests.integration.orchestrator.database_faults import Faults, ended, repeated, shorten_pauses
from tests.integration.orchestrator.fakes import watch
from tests.integration.orchestrator.stack import TRAINER, Stack
from tests.integration.orchestrator.test_orchestrator_killed_steps import warm
from tests.integration.orchestrator.test_parameters_session import served
from tests.integration.orchestrator.test_program_session import ProgramAuthors

pytestmark = [pytest.mark.asyncio, pytest.mark.timeout(300)]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    shorten_pauses(monkeypatch)


class CodeAuthors(SearchAuthors):
    """Two rounds of policies, with repairs; each answer is given once."""

    def answers(self) -> list[Any]:
        return code_killed.script()


def spec_of(method: str) -> v1.SessionSpec:
    environment = "karel/StairClimber" if method == "program" else "CartPole-v1"
    spec = v1.SessionSpec(intent="x", environment=f"environments/{environment}", model="openai/scripted")
    if method == "parameters":
        settings = {"target": 1e12, "episodes": 2, "report_episodes": 3, "warmup": 2, "episode_budget": 12}
        spec.parameters.CopyFrom(v1.ParameterSpec(search="r2po", **settings))
    elif method == "code":
        spec.code.CopyFrom(v1.CodeSpec(candidates=3, episodes=2, report_episodes=4))
    else:
        spec.program.CopyFrom(v1.ProgramSpec(seed_programs=4, replies=6, budget=500, target=2))
    return spec


AUTHORS = {"parameters": SearchAuthors, "code": CodeAuthors, "program": ProgramAuthors}
EXPECTED = {
    "parameters": (v1.SESSION_STATE_EXHAUSTED, 8, 6, 3),
    "code": (v1.SESSION_STATE_SUCCEEDED, 7, 10, 4),
    "program": (v1.SESSION_STATE_EXHAUSTED, 500, 6, 32),
}
"""State, candidates, requests to the provider, and episodes of the report."""
QUICK = (sqlite3.SQLITE_FULL, 1)
"""The case that `make test` runs: the first execution of each statement, and the commit after it."""
CASES = [QUICK] + [
    pytest.param(*case, marks=pytest.mark.slow)
    for case in (
        (sqlite3.SQLITE_FULL, 2),
        (sqlite3.SQLITE_BUSY, 1),
        (sqlite3.SQLITE_BUSY, 3),
        (sqlite3.SQLITE_IOERR, 1),
        (sqlite3.SQLITE_IOERR, 5),
        (sqlite3.SQLITE_FULL, -149),
        (sqlite3.SQLITE_BUSY, -61),
    )
]


@pytest.mark.parametrize("method", [*AUTHORS])
@pytest.mark.parametrize(("code", "occurrence"), CASES)
async def test_no_statement_may_fail_a_session(stack: Stack, method: str, code: int, occurrence: int) -> None:
    await warm()
    faults = Faults(code, abs(occurrence), every=occurrence < 0)
    trainer = () if method == "program" else TRAINER
    with faults.injected():
        # Scripted trainers end where a real one redials.
        async with served(stack, AUTHORS[method](seed=4), trainer_command=trainer, max_run_failures=100) as server:
            with faults.raising():
                async with asyncio.timeout(200):
                    created = await repeated(stack, spec_of(method))
                    await ended(stack, created.name)
            events = await watch(stack.sessions, created.name)
            session = await stack.sessions.GetSession(pb.GetSessionRequest(name=created.name))
            requests = len(server.provider.requests)
    faults.check()
    facts = (session.state, session.candidates, requests, len(session.report.returns))
    assert facts == EXPECTED[method], (session.state_reason, session.failure)
    assert session.cost.requests == requests
    assert [event.sequence for event in events] == list(range(1, len(events) + 1))
    assert [event.WhichOneof("payload") for event in events].count("session_ended") <= 1
