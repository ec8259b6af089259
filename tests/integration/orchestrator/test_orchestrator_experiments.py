"""`dressage bench EXPERIMENT.yaml` against a real orchestrator, with the plug-in method `number` of the tests."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import yaml
from dressage.api.v1 import session_service_pb2 as pb
from dressage.cli.main import invoke
from dressage.client import AsyncClient
from dressage.errors import DeadlineExceeded, Unavailable
from dressage.experiments.cells import cells
from dressage.experiments.driver import Driver
from dressage.experiments.records import RESULTS, ResultFolder
from dressage.experiments.schema import load_experiment

from tests.integration.orchestrator.stack import Stack
from tests.integration.orchestrator.test_orchestrator_plugin_method import PLUGIN, numbers

pytestmark = pytest.mark.asyncio


@pytest_asyncio.fixture
async def server(stack: Stack, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Stack]:
    """A server with the plug-in, whose author proposes 1, 2, 3, …; commands find the server by the environment."""
    monkeypatch.syspath_prepend(str(PLUGIN))
    monkeypatch.setenv("COLUMNS", "180")
    monkeypatch.setenv("DRESSAGE_HOME", str(stack.folder / "home"))
    stack.neighbours.agent.answer = numbers(*range(1, 50))
    await stack.start()
    monkeypatch.setenv("DRESSAGE_ADDRESS", stack.service.address)
    yield stack


def write(folder: Path, **changes: Any) -> Path:
    """The file of an experiment: one method that finds its number at once, one that never does."""
    content = {
        "name": "numbers",
        "intent": "find the number",
        "environments": ["CartPole-v1"],
        "methods": [
            {"name": "near", "method": "number", "settings": {"target": 5, "start": 5}},
            {"name": "far", "method": "number", "settings": {"target": 1000.0, "start": 2}},
        ],
        "runs": 1,
        "budget": {"iterations": 2},
    }
    path = folder / "numbers.yaml"
    path.write_text(yaml.safe_dump(content | changes))
    return path


async def bench(*arguments: str) -> tuple[int, Any, str]:
    """Exit code, document and errors of `dressage bench`."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = await asyncio.wait_for(asyncio.to_thread(invoke, ["bench", *arguments, "--json"]), 120)
    _, brace, document = out.getvalue().partition("{\n")  # the fakes of this process log to standard output
    return code, json.loads(brace + document or "null"), err.getvalue()


async def created(server: Stack) -> dict[str, Any]:
    """The sessions of the server by id."""
    listed = await server.sessions.ListSessions(pb.ListSessionsRequest(page_size=100))
    return {session.name.partition("/")[2]: session for session in listed.sessions}


async def test_an_experiment_has_a_result_for_each_cell(server: Stack, tmp_path: Path) -> None:
    code, document, err = await bench(str(write(tmp_path, runs=2)))
    assert code == 0, err
    assert err.startswith("4 sessions: 0 with a result, 4 to run, 2 at a time\n") and "[4/4] CartPole-v1 " in err
    results = {(entry["method"], entry["run"]): entry for entry in document["results"]}
    assert set(results) == {("near", 0), ("near", 1), ("far", 0), ("far", 1)}
    near, far = results["near", 1], results["far", 0]
    assert (near["state"], near["score"], near["seed"]) == ("succeeded", 1.0, 1)
    assert (far["state"], far["exhausted_limit"], far["requests"]) == ("exhausted", "iterations", 1)
    assert far["dollars"] == pytest.approx(0.01) and far["input_tokens"] == 100 and far["machine"]["server"]
    lines = (tmp_path / "results" / "numbers" / RESULTS).read_text().splitlines()
    assert len(lines) == 4 and {json.loads(line)["cell"] for line in lines} == set(await created(server))


async def test_more_runs_and_iterations_repeat_no_finished_cell(server: Stack, tmp_path: Path) -> None:
    await bench(str(write(tmp_path)))
    before = await created(server)
    code, document, err = await bench(str(write(tmp_path)))
    assert code == 0 and err == "" and len(document["results"]) == 2, "nothing is left to do"
    assert {name: each.etag for name, each in (await created(server)).items()} == {
        name: each.etag for name, each in before.items()
    }
    # Another run is added; the session that the iterations ended continues, the other one keeps its result.
    code, document, err = await bench(str(write(tmp_path, runs=2, budget={"iterations": 3})))
    after = await created(server)
    assert code == 0 and len(after) == 4 and set(before) < set(after)
    assert err.startswith("4 sessions: 1 with a result, 3 to run, 2 at a time\n")
    epochs = {entry["method"]: after[entry["cell"]].epoch for entry in document["results"] if entry["run"] == 0}
    assert epochs == {"near": 0, "far": 1}
    far = next(entry for entry in document["results"] if entry["method"] == "far" and entry["run"] == 0)
    assert far["limits"]["iterations"] == 3 and after[far["cell"]].current_iteration == 3


async def test_a_killed_bench_waits_for_its_sessions(server: Stack, tmp_path: Path) -> None:
    held = asyncio.Event()
    experiment = load_experiment(write(tmp_path, runs=2))
    folder = ResultFolder(tmp_path / "out")
    async with AsyncClient.connect(server.service.address) as client:

        async def never(_: float) -> None:
            held.set()
            await asyncio.sleep(3600)

        driver = Driver(client, folder, parallel=1, machine={}, on_cell=lambda *_: None, sleep=never)
        killed = asyncio.create_task(driver.run(cells(experiment)))
        await asyncio.wait_for(held.wait(), 60)
        killed.cancel()
        await asyncio.gather(killed, return_exceptions=True)
        assert len(await created(server)) == 1 and folder.records() == []
        (first,) = await created(server)
        again = Driver(client, folder, parallel=4, machine={}, on_cell=lambda *_: None)
        outcome = await asyncio.wait_for(again.run(cells(experiment)), 90)
    assert (len(outcome.records), len(outcome.failed)) == (4, 0)
    after = await created(server)
    assert len(after) == 4 and after[first].epoch == 0


class Away:
    """A client whose server does not answer some of its reads.

    :param times: reads of sessions that get no answer.
    """

    def __init__(self, client: AsyncClient, times: float) -> None:
        self._client, self.times = client, times

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    async def get_session(self, name: str) -> Any:
        self.times -= 1
        if self.times >= 0:
            raise (Unavailable, DeadlineExceeded)[int(self.times) % 2]("the server is away")
        return await self._client.get_session(name)


@pytest.mark.parametrize(("times", "results"), [(9, 2), (float(10**6), 0)], ids=["for a while", "for ever"])
async def test_an_outage_is_waited_for(
    server: Stack, tmp_path: Path, capsys: pytest.CaptureFixture[str], times: float, results: int
) -> None:
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)
        await asyncio.sleep(min(seconds, 0.05))

    folder = ResultFolder(tmp_path / "out")
    async with AsyncClient.connect(server.service.address) as client:
        away: Any = Away(client, times)
        driver = Driver(away, folder, parallel=1, machine={}, on_cell=lambda *_: None, sleep=sleep)
        outcome = await asyncio.wait_for(driver.run(cells(load_experiment(write(tmp_path)))), 90)
    assert (len(outcome.records), len(outcome.failed)) == (results, 2 - results)
    assert all(failed.message == "the server is away" for failed in outcome.failed)
    assert slept.count(30.0) == capsys.readouterr().err.count(
        "the server does not answer, trying again: the server is away"
    )
    assert slept.count(30.0) == (9 if results else 18)


async def test_a_failed_cell_is_reported_and_tried_again(server: Stack, tmp_path: Path) -> None:
    server.neighbours.agent.answer = numbers()  # an author without answers
    code, document, err = await bench(str(write(tmp_path)))
    assert code == 1 and [entry["label"] for entry in document["failed"]] == ["CartPole-v1 far run 0"]
    assert "CartPole-v1 far run 0: failed" in err
    server.neighbours.agent.answer = numbers(*range(1, 50))
    code, document, _ = await bench(str(write(tmp_path)))
    assert code == 0 and not document["failed"] and len(await created(server)) == 2


async def test_a_wrong_experiment_plays_nothing(server: Stack, tmp_path: Path) -> None:
    methods = [{"name": "x", "method": "number", "settings": {"scale": -1}}]
    code, _, err = await bench(str(write(tmp_path, methods=methods)))
    assert code == 1 and "x in CartPole-v1: spec.custom.scale" in err and not await created(server)
    code, _, err = await bench(str(write(tmp_path, environments=["Lost-v1"])))
    assert code == 1 and "Lost-v1" in err and not await created(server)
    code, _, err = await bench(str(write(tmp_path)), "--seeds", "3")
    assert code == 1 and "--seeds: not an option of experiments" in err
    code, _, err = await bench("cases.csv", "--parallel", "3")
    assert code == 2 and "--parallel" in err
