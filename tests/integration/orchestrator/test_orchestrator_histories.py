"""A replay of each method's history, and what happens where the code has other steps."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path

import pytest
from dressage.api.v1 import session_pb2 as v1
from dressage.api.v1 import session_service_pb2 as pb
from dressage_orchestrator import wiring
from dressage_orchestrator.database import sessions
from dressage_orchestrator.database.engine import Database, sqlite_url
from search_authors import SearchAuthors

from tests.fakes.specs import reward_session
from tests.integration.orchestrator.fakes import JUDGE, watch
from tests.integration.orchestrator.stack import Stack
from tests.integration.orchestrator.test_orchestrator_code_method import Author, play
from tests.integration.orchestrator.test_parameters_session import served
from tests.integration.orchestrator.test_program_session import ProgramAuthors, spec_of

METHODS = ("reward", "parameters", "code", "program")
DATABASES = ("dressage.db", "workflows.db")
History = Callable[[str], Awaitable[list[str]]]
ENDED = (v1.SESSION_STATE_SUCCEEDED, v1.SESSION_STATE_EXHAUSTED, v1.SESSION_STATE_FAILED)


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wiring, "_RECONCILE_SECONDS", 0.3)


# -- recording


async def run_reward(stack: Stack) -> None:
    """Two iterations, a confirmation, and checkpoints that child workflows judge."""
    await stack.start()
    spec = reward_session(
        intent="run", environment="environments/HalfCheetah-v5", seeds=1, steps_per_member=1000, max_iterations=2,
        reward_source="# good # curve=0.2\n", judge_source=JUDGE,
    )  # fmt: skip
    await stack.sessions.CreateSession(pb.CreateSessionRequest(spec=spec, session_id="recorded"))
    await watch(stack.sessions, "sessions/recorded")


async def run_parameters(stack: Stack) -> None:
    async with served(stack, SearchAuthors(seed=3)) as line:
        spec = v1.SessionSpec(intent="balance", environment="environments/CartPole-v1", model="openai/scripted")
        budget = {"episode_budget": 60, "episodes": 5, "warmup": 5, "target": 1e9}
        spec.parameters.CopyFrom(v1.ParameterSpec(search="r2po", **budget))
        await line.run("recorded", spec)


async def run_code(stack: Stack) -> None:
    await play(stack, Author(["# a score=100\n", "# b bad score=200\n"], ["# c score=480\n", "# a score=100\n"]))


async def run_program(stack: Stack) -> None:
    async with served(stack, ProgramAuthors(seed=1)) as line:
        await line.run("recorded", spec_of(budget=20_000))


@pytest.fixture(scope="module")
def recordings() -> dict[str, list[str]]:
    """Dumps of both databases after a session, by method; filled by `history`."""
    return {}


@pytest.fixture
def history(recordings: dict[str, list[str]], tmp_path: Path) -> History:
    """Returns the dumps of a method's session, which runs once for all tests."""

    async def record(method: str) -> list[str]:
        if method not in recordings:
            stack = Stack(tmp_path / "recorded")
            await stack.neighbours.start()
            try:
                await globals()[f"run_{method}"](stack)
            finally:
                await stack.stop()
                await stack.neighbours.stop()
            recordings[method] = [_dump(stack.folder / name) for name in DATABASES]
        return recordings[method]

    return record


def _dump(path: Path) -> str:
    with closing(sqlite3.connect(path)) as database:
        return "\n".join(database.iterdump())


# -- replaying


def restore(history: list[str], folder: Path, *, change: str = "") -> v1.Session:
    """Restore both databases as they were before the last step, "end"; returns the session as it ended.

    :param change: statements to run on the history.
    """
    for name, script in zip(DATABASES, history, strict=True):
        with closing(sqlite3.connect(folder / name)) as connection:
            connection.executescript(script)
            if name == "workflows.db":
                connection.execute("DELETE FROM operation_outputs WHERE function_name = 'end'")
                connection.execute("UPDATE workflow_status SET status = 'PENDING' WHERE name = 'session'")
                connection.execute("DELETE FROM workflow_output WHERE workflow_uuid NOT LIKE '%:%:%'")
                connection.executescript(change)
            connection.commit()
    database = Database(sqlite_url(folder / "dressage.db"))
    with database.begin() as tx:
        (stored,) = sessions.in_states(tx, frozenset(ENDED))
        ended = v1.Session()
        ended.CopyFrom(stored)

        def running(session: v1.Session) -> None:
            session.state = v1.SESSION_STATE_RUNNING
            session.ClearField("end_time")

        sessions.change(tx, ended.name.partition("/")[2], running)
    database.close()
    return ended


async def ended_session(stack: Stack, name: str) -> v1.Session:
    async with asyncio.timeout(60):
        while True:
            session: v1.Session = await stack.sessions.GetSession(pb.GetSessionRequest(name=name))
            if session.state in ENDED:
                return session
            await asyncio.sleep(0.1)


@pytest.mark.parametrize("method", METHODS)
async def test_a_history_is_replayed_without_work(stack: Stack, history: History, method: str) -> None:
    before = restore(await history(method), stack.folder)
    await stack.start()
    after = await ended_session(stack, before.name)
    assert (after.state, after.epoch) == (before.state, before.epoch), after.failure
    assert after.best_policy == before.best_policy and after.best_score == before.best_score
    neighbours = stack.neighbours
    assert not neighbours.agent.keys and not neighbours.judge.checks and not neighbours.judge.judged


@pytest.mark.parametrize("method", ["reward", "parameters"])
async def test_other_steps_end_a_session_with_a_reason_and_its_policy(
    stack: Stack, history: History, method: str
) -> None:
    rename = "UPDATE operation_outputs SET function_name = 'another' WHERE function_id = 4"
    before = restore(await history(method), stack.folder, change=rename)
    await stack.start()
    failed = await ended_session(stack, before.name)
    assert (failed.state, failed.epoch) == (v1.SESSION_STATE_FAILED, 0)
    assert failed.failure.reason == "WORKFLOW_HISTORY_MISMATCH" and "another" in failed.failure.message
    assert failed.failure.remedy and failed.best_policy == before.best_policy != ""
    await stack.sessions.ResumeSession(pb.ResumeSessionRequest(name=before.name))
    resumed = await ended_session(stack, before.name)
    assert resumed.epoch == 1 and resumed.failure.reason != "WORKFLOW_HISTORY_MISMATCH"
    if method == "reward":  # the others propose anew, which needs their authors
        assert resumed.state == before.state, resumed.failure


async def test_a_workflow_of_another_version_begins_the_next_epoch(stack: Stack, history: History) -> None:
    older = "UPDATE workflow_status SET application_version = '0'"
    before = restore(await history("reward"), stack.folder, change=older)
    await stack.start()
    resumed = await ended_session(stack, before.name)
    assert (resumed.state, resumed.epoch) == (before.state, 1), resumed.failure
