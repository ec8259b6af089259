"""The functions of `dressage` on a served address: the examples of docs/python.md, and a session that is read later."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dressage
import pytest
from dressage.client.loop import LoopThread
from dressage.local.stack import LocalStack

PAGE = Path(__file__).parents[3] / "docs" / "python.md"
TINY = {"seeds": 1, "steps": 4096, "env_options": {"max_episode_steps": 40}, "quiet": True}
"""Arguments that make a session of the examples short."""


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalStack]:
    """A server with all services, on real gRPC."""
    loop = LoopThread()
    stack = loop.run(LocalStack.start(tmp_path_factory.mktemp("served")))
    try:
        yield stack
    finally:
        loop.run(stack.stop())
        loop.stop()


@pytest.fixture
def address(served: LocalStack, monkeypatch: pytest.MonkeyPatch) -> str:
    """Its address, with its token in the environment."""
    monkeypatch.setenv("DRESSAGE_TOKEN", served.token)
    return served.address


@pytest.fixture
def client_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data folder that the server does not use: all comes over the network."""
    monkeypatch.setenv("DRESSAGE_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def blocks() -> Iterator[tuple[int, str]]:
    """The examples that are executed, with their lines."""
    text = PAGE.read_text("utf-8")
    for match in re.finditer(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
        yield text.count("\n", 0, match.start(1)) + 1, match.group(1)


@pytest.mark.timeout(600)  # two sessions and an import of torch, on a busy machine
def test_the_examples_of_the_page_work(address: str, client_folder: Path, monkeypatch: pytest.MonkeyPatch):
    pytest.importorskip("stable_baselines3")
    monkeypatch.setenv("DRESSAGE_ADDRESS", address)
    kinds = set()

    def leave_and_return(*arguments: Any, train: Callable[..., dressage.Result] = dressage.train) -> dressage.Result:
        begun = train(*arguments, env="HalfCheetah-v5", **TINY, detach=True)
        assert begun.state in ("pending", "running") and begun.message.best_policy == ""
        return dressage.result(
            begun.session, wait=True, quiet=True, on_event=lambda event: kinds.add(event.WhichOneof("payload"))
        )

    def run(*arguments: Any, play: Callable[..., dressage.Result] = dressage.run, **given: Any) -> dressage.Result:
        short = {"quiet": True} if "method" in given else {**TINY, "iterations": 1}
        return play(*arguments, **short, **given)

    monkeypatch.setattr(dressage, "run", run)
    monkeypatch.setattr(dressage, "train", lambda reward, env: leave_and_return(reward))
    names: dict[str, Any] = {"__name__": "page"}
    for line, block in blocks():
        path = client_folder / f"python_md_{line}.py"  # a file, so that the source of a function is there
        path.write_text("\n" * (line - 1) + block)
        exec(compile(path.read_text(), str(path), "exec"), names)
    result, trained = names["result"], names["trained"]
    assert (result.environment, result.method, result.state) == ("HalfCheetah-v5", "reward", "exhausted")
    assert result.connection.artifacts is None, "the policy came over the network"
    assert result.video is not None and result.video.read_bytes()[4:8] == b"ftyp"
    assert result.curve is not None and result.curve.picture.read_bytes().startswith(b"\x89PNG")
    assert trained.score is None and trained.state == "succeeded" and trained.stock_return is not None
    assert "def reward(state" in trained.reward_source
    assert {"state_changed", "progress", "evaluation_finished"} <= kinds
    assert names["evaluation"].lengths == (40,) * 5, "evaluated with the options that it was trained with"
    assert not (client_folder / "home").exists(), "nothing ran here"


@pytest.mark.timeout(300)
def test_the_example_of_servers_works(address: str, client_folder: Path, monkeypatch: pytest.MonkeyPatch):
    (block,) = re.findall(r"^```py\n(.*?)^```", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    assert block.count('"gpu-host:7400"') == 2
    begun: list[dressage.Result] = []

    def run(*arguments: Any, play: Callable[..., dressage.Result] = dressage.run, **given: Any) -> dressage.Result:
        begun.append(play(*arguments, **TINY, iterations=1, **given))
        return begun[0]

    monkeypatch.setattr(dressage, "run", run)
    monkeypatch.setattr(dressage, "result", functools.partial(dressage.result, quiet=True))
    names: dict[str, Any] = {"dressage": dressage}
    exec(compile(block.replace("gpu-host:7400", address), str(PAGE), "exec"), names)
    result = names["result"]
    assert begun[0].state in ("pending", "running") and result.session == begun[0].session
    assert result.state == "exhausted" and result.environment == "Hopper-v5" and result.policy is not None
    assert not (client_folder / "home").exists(), "nothing ran here"


def test_what_a_server_refuses_is_an_error_of_ours(address: str, client_folder: Path):
    with pytest.raises(dressage.errors.InvalidArgument, match=r"^env: unknown environment .*HalfCheetah-v5"):
        dressage.run("hop", env="HalfCheetah-v6", address=address)
    with pytest.raises(dressage.errors.InvalidArgument, match=r"^env_options\.max_episode_steps"):
        dressage.run("hop", env="Hopper-v5", env_options={"max_episode_steps": -1}, address=address)
    with pytest.raises(dressage.errors.NotFound, match="no session 'none'"):
        dressage.result("none", address=address)
