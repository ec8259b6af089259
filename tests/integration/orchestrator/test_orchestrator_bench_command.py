"""`dressage bench` against a real orchestrator, with the plug-in method `number` of the tests."""

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
from dressage.experiments.collector import Collector
from dressage.experiments.files import read_matrix
from dressage.experiments.records import RESULTS, ResultFolder

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


async def test_a_benchmark_continues_without_its_client(server: Stack, tmp_path: Path) -> None:
    path = write(tmp_path, runs=2)
    code, document, err = await bench(str(path), "--detach", "--parallel", "1")
    assert code == 0 and document["benchmark"]["name"] == "benchmarks/numbers" and "1 at a time" in err
    assert (
        "numbers continues when this command ends" in err
        and f"cancel numbers --address {server.service.address}" in err
    )
    async with AsyncClient.connect(server.service.address) as client, asyncio.timeout(90):
        completed = [benchmark.completed async for benchmark in client.watch_benchmark("numbers")]
    assert completed[-1] == 4 and not (tmp_path / "results" / "numbers" / RESULTS).exists()
    before = {name: each.etag for name, each in (await created(server)).items()}
    code, document, _ = await bench(str(path))
    assert code == 0 and len(document["results"]) == 4, "the results are stored by the next command"
    assert {name: each.etag for name, each in (await created(server)).items()} == before


async def test_a_result_that_a_kill_lost_is_stored_again(server: Stack, tmp_path: Path) -> None:
    await bench(str(write(tmp_path)))
    stored = tmp_path / "results" / "numbers" / RESULTS
    first, second = stored.read_text().splitlines(keepends=True)
    stored.write_text(first + second[:40])  # the kill cut off the line
    code, document, err = await bench(str(write(tmp_path)))
    assert code == 0 and err.startswith("2 sessions: 1 with a result, 1 to run")
    assert {entry["cell"] for entry in document["results"]} == set(await created(server))
    assert {each.epoch for each in (await created(server)).values()} == {0}


class Away:
    """A client whose server does not answer some of its calls to watch.

    :param times: watches that get no answer.
    """

    def __init__(self, client: AsyncClient, times: float) -> None:
        self._client, self.times = client, times

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    async def watch_benchmark(self, name: str) -> Any:
        self.times -= 1
        if self.times >= 0:
            raise (Unavailable, DeadlineExceeded)[int(self.times) % 2]("the server is away")
        async for benchmark in self._client.watch_benchmark(name):
            yield benchmark


@pytest.mark.parametrize("times", [9, float(10**6)], ids=["for a while", "for ever"])
async def test_an_outage_is_waited_for(
    server: Stack, tmp_path: Path, capsys: pytest.CaptureFixture[str], times: float
) -> None:
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    folder = ResultFolder(tmp_path / "out")
    cases = read_matrix(write(tmp_path)).request.cases
    async with AsyncClient.connect(server.service.address) as client:
        away: Any = Away(client, times)
        await client.create_benchmark(cases, name="numbers")
        collector = Collector(away, folder, experiment="numbers", machine={}, on_case=lambda *_: None, sleep=sleep)
        following = collector.follow("benchmarks/numbers", {case.session_id for case in cases})
        if times == 9:
            assert (await asyncio.wait_for(following, 90)).completed == 2
        else:
            with pytest.raises((Unavailable, DeadlineExceeded), match="the server is away"):
                await asyncio.wait_for(following, 90)
    assert len(folder.records()) == (2 if times == 9 else 0)
    assert slept == [30.0] * (9 if times == 9 else 10)
    assert capsys.readouterr().err.count("the server does not answer, trying again: the server is away") == len(slept)


async def test_cases_of_a_csv_are_continued_by_the_same_command(server: Stack, tmp_path: Path) -> None:
    path, folder = tmp_path / "Cases 1.csv", tmp_path / "results" / "cases-1"
    path.write_text(
        "env_id,instruction,difficulty\nCartPole-v1,first,easy\nCartPole-v1,second,hard\nCartPole-v1,first,\n"
    )
    settings = ("--method", "number", "--set", "target=1000", "--set", "start=2", "--flat")
    code, document, err = await bench(str(path), *settings, "--iterations", "2")
    assert code == 0 and "[3/3] CartPole-v1 " in err
    assert document["benchmark"]["completed"] == 3 and Path(document["files"][0]).parent == folder
    assert {(entry["method"], entry["run"], entry["intent"]) for entry in document["results"]} == {
        ("number", 0, "first"),
        ("number", 0, "second"),
        ("number", 1, "first"),
    }
    assert len((folder / "cases.csv").read_text().splitlines()) == 4 and (folder / RESULTS).exists()
    code, again, _ = await bench(str(path), *settings, "--iterations", "2")
    assert code == 0 and again["results"] == document["results"] and len(await created(server)) == 3
    path.write_text(path.read_text() + "CartPole-v1,third,hard\n")
    code, more, _ = await bench(str(path), *settings, "--iterations", "3")
    sessions = await created(server)
    assert code == 0 and len(more["results"]) == 4 and len(sessions) == 4, "a line is added"
    assert sorted(each.epoch for each in sessions.values()) == [0, 1, 1, 1], "and a larger limit extends the others"
    assert {each.current_iteration for each in sessions.values()} == {3}
    code, followed, _ = await bench("--resume", more["benchmark"]["name"], "--out", str(tmp_path / "followed"))
    assert code == 0 and (tmp_path / "followed" / "report.md").exists() and len(followed["results"]) == 4


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
    assert code == 1 and "case 1 (x in CartPole-v1): spec.custom.scale" in err and not await created(server)
    code, _, err = await bench(str(write(tmp_path, environments=["Lost-v1"])))
    assert code == 1 and "Lost-v1" in err and not await created(server)
    code, _, err = await bench(str(write(tmp_path)), "--seeds", "3")
    assert code == 1 and "--seeds: not an option of experiments" in err
