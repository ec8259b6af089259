"""Command lines against a fake server on real gRPC: output, exit codes, errors, JSON."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from dressage import errors
from dressage.api.v1 import environment_service_pb2, session_pb2, session_service_pb2
from dressage.cli import listings
from dressage.cli import run as work
from dressage.cli.main import invoke
from dressage.client import AsyncClient
from dressage.local.connection import Connection

from tests.fakes.orchestrator import Background, FakeOrchestrator, Fault

POLICY = "sessions/s1/iterations/1/assignments/train/members/base-s0/policy"
VIDEO = "sessions/s1/iterations/1/assignments/train/members/base-s0/videos/600000_median.mp4"


def ended(state: int = session_pb2.SESSION_STATE_SUCCEEDED) -> session_pb2.Session:
    judgment = session_pb2.Judgment(
        score=0.86, passed=True, samples=[0.9, 0.82, 0.86], interval_low=0.82, interval_high=0.9
    )
    session = session_pb2.Session(
        name="sessions/s1",
        state=state,
        best_judgment=judgment,
        best_policy=POLICY,
        best_video=VIDEO,
        env_steps=1_800_000,
    )
    session.returns.CopyFrom(
        session_pb2.ReturnSummary(
            mean=4200, std=130, random_mean=-280, mean_speed=5.1, random_mean_speed=-0.04, episodes=30
        )
    )
    session.start_time.FromSeconds(1_700_000_000)
    session.end_time.FromSeconds(1_700_000_065)
    return session


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Background]:
    estimate = session_service_pb2.EstimateSessionResponse(
        env_steps_per_iteration=1_800_000, minutes_per_iteration=1.5, model_calls_per_iteration=0
    )
    estimate.spec.CopyFrom(
        session_pb2.SessionSpec(
            intent="run forward fast",
            environment="environments/HalfCheetah-v5",
            model="template/v1",
            max_iterations=5,
            reward=session_pb2.RewardSpec(seeds=3),
        )
    )
    fake = FakeOrchestrator(estimate=estimate, ended=ended())
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DRESSAGE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("COLUMNS", "160")
    with Background(fake) as running:
        monkeypatch.setenv("DRESSAGE_ADDRESS", running.address)
        yield running


def document(capsys: pytest.CaptureFixture[str]) -> Any:
    return json.loads(capsys.readouterr().out)


EXAMPLE = Path(__file__).parents[3] / "examples/rewards/run_forward.py"
RUN = ["run", "run forward fast", "--env", "HalfCheetah-v5"]


def test_run_prints_plan_progress_and_summary(server: Background, capsys: pytest.CaptureFixture[str]):
    assert invoke(RUN) == 0
    text = capsys.readouterr().out
    assert "1,800,000 environment steps (1 config × 3 seeds), about 1 min 30 s an iteration" in text
    assert "template/v1: built-in templates, no language model, no cost" in text
    assert "0.86 ± 0.04 over 3 seeds, 95 % interval 0.82 to 0.90 (passed)" in text
    assert "4200 ± 130 over seeds (random policy -280), 30 episodes" in text
    assert "5.10 m/s (random policy -0.04 m/s)" in text
    assert f"dressage artifacts get {POLICY}" in text
    assert server.fake.requests["CreateSession"][0].spec.intent == "run forward fast"


def test_run_passes_its_options_on(server: Background):
    (Path.cwd() / "j.py").write_text("judge")
    options = [
        "--model",
        "m",
        "--seeds",
        "2",
        "--seed",
        "7",
        "--steps",
        "600k",
        "--iterations",
        "4",
        "--threshold",
        "0.5",
    ]
    more = ["--config", "a:epochs=3", "--config", "b:", "--judge", "j.py", "--budget-dollars", "1.5", "--yes"]
    assert invoke([*RUN, *options, *more]) == 0
    spec = server.fake.requests["CreateSession"][0].spec
    assert (spec.model, spec.reward.seeds, spec.seed, spec.reward.max_steps_per_member) == ("m", 2, 7, 600_000)
    assert (spec.max_iterations, spec.pass_threshold, spec.judge_source) == (4, 0.5, "judge")
    assert [config.id for config in spec.reward.configs] == ["a", "b"]
    assert spec.budget.dollars == 1.5


def test_run_as_json_is_one_document(server: Background, capsys: pytest.CaptureFixture[str]):
    assert invoke([*RUN, "--json"]) == 0
    facts = document(capsys)
    assert facts["state"] == "succeeded"
    assert facts["plan"]["max_env_steps"] == 9_000_000
    assert facts["score"]["interval"] == [0.82, 0.9]
    assert facts["policy"] == {"artifact": POLICY, "path": None}
    assert facts["session"]["env_steps"] == 1_800_000, "64-bit integers are numbers"


@pytest.mark.parametrize(
    ("state", "code"),
    [
        (session_pb2.SESSION_STATE_EXHAUSTED, 0),
        (session_pb2.SESSION_STATE_FAILED, 1),
        (session_pb2.SESSION_STATE_CANCELLED, 130),
    ],
)
def test_the_exit_code_depends_on_the_final_state(server: Background, state: int, code: int):
    server.fake.ended = ended(state)
    assert invoke(RUN) == code


def test_a_failed_session_prints_reason_and_remedy(server: Background, capsys: pytest.CaptureFixture[str]):
    session = session_pb2.Session(state=session_pb2.SESSION_STATE_FAILED, state_reason="REWARD_REJECTED")
    session.failure.CopyFrom(session_pb2.Failure(reason="R", message="line 3: no such field", remedy="fix the line"))
    server.fake.ended = session
    assert invoke(RUN) == 1
    text = capsys.readouterr().out
    assert "failed: REWARD_REJECTED; line 3: no such field; fix the line" in text


def test_a_failed_session_prints_a_remedy_once(server: Background, capsys: pytest.CaptureFixture[str]):
    reason = "the evaluation failed: it is not installed. Install it"
    session = session_pb2.Session(state=session_pb2.SESSION_STATE_FAILED, state_reason=reason)
    session.failure.CopyFrom(session_pb2.Failure(reason="R", message=reason, remedy="Install it"))
    server.fake.ended = session
    assert invoke(RUN) == 1
    assert capsys.readouterr().out.count("Install it") == 1


def test_detach_returns_at_once_and_prints_how_to_follow(server: Background, capsys: pytest.CaptureFixture[str]):
    assert invoke([*RUN, "--detach"]) == 0
    text = capsys.readouterr().out
    assert f"dressage sessions watch s1 --address {server.address}" in text
    assert not server.fake.requests["WatchSession"]


def test_train_requests_a_training_only(server: Background, capsys: pytest.CaptureFixture[str]):
    (Path.cwd() / "reward.py").write_text("def reward(): ...")
    server.fake.estimate.spec.reward.train_only = True
    assert invoke(["train", "reward.py", "--env", "Hopper-v5", "--steps", "1M"]) == 0
    spec = server.fake.requests["CreateSession"][0].spec
    assert spec.reward.train_only
    assert (spec.reward.reward_source, spec.intent, spec.max_iterations) == (
        "def reward(): ...",
        "train on reward.py",
        1,
    )
    assert "none: training with your reward" in capsys.readouterr().out


def test_a_domain_error_is_one_line_and_code_1(server: Background, capsys: pytest.CaptureFixture[str]):
    fault = Fault(grpc.StatusCode.NOT_FOUND, "environment Cheetah does not exist; known: Hopper-v5", "NO_ENVIRONMENT")
    server.fake.fail_next("EstimateSession", fault, fault)
    assert invoke(["run", "x", "--env", "Cheetah"]) == 1
    captured = capsys.readouterr()
    assert captured.err == "error: environment Cheetah does not exist; known: Hopper-v5\n"
    assert captured.out == ""
    assert invoke(["run", "x", "--env", "Cheetah", "--json"]) == 1
    captured = capsys.readouterr()
    assert json.loads(captured.err)["error"]["reason"] == "NO_ENVIRONMENT"
    assert captured.out == ""


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run"], "INTENT"),
        (["run", "x"], "--env"),
        ([*RUN, "--steps", "-5"], "-5"),
        ([*RUN, "--seeds", "0"], "seeds"),
        ([*RUN, "--threshold", "2"], "threshold"),
        ([*RUN, "--speed", "2"], "--speed"),
        (["fly"], "fly"),
        (["export", "x", "--format", "zip"], "sb3, onnx"),
    ],
)
def test_wrong_usage_is_code_2(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]):
    assert invoke(arguments) == 2
    captured = capsys.readouterr()
    assert message in captured.err
    assert "Traceback" not in captured.err
    assert captured.out == ""


def test_an_unexpected_error_is_a_line_and_a_traceback_only_on_demand(
    server: Background, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("odd")

    monkeypatch.setattr("dressage.cli.listings.print_sessions", broken)
    assert invoke(["sessions", "list"]) == 1
    assert capsys.readouterr().err.startswith("error: RuntimeError: odd")
    monkeypatch.setenv("DRESSAGE_DEBUG", "1")
    with pytest.raises(RuntimeError):
        invoke(["sessions", "list"])


def test_sessions_are_listed_shown_and_acted_on(server: Background, capsys: pytest.CaptureFixture[str]):
    assert invoke(["sessions", "list"]) == 0
    assert "no sessions yet" in capsys.readouterr().out
    assert invoke([*RUN]) == 0
    capsys.readouterr()
    assert invoke(["sessions", "list"]) == 0
    assert "run forward fast" in capsys.readouterr().out
    assert invoke(["sessions", "show", "s1"]) == 0
    assert "template/v1" in (text := capsys.readouterr().out) and "r = v_x" in text, "the first reward as its formula"
    assert invoke(["sessions", "show", "sessions/s1", "--json"]) == 0
    assert document(capsys)["iterations"][0]["author"] == "template/v1"
    assert invoke(["sessions", "steer", "s1", "lower"]) == 0
    assert server.fake.requests["SteerSession"][0].note == "lower"
    assert "next iteration once `dressage sessions resume s1" in capsys.readouterr().out  # it has ended
    assert invoke(["sessions", "lineage", "s1"]) == 0
    assert "effort was too dear" in capsys.readouterr().out
    assert invoke(["sessions", "cancel", "s1"]) == 0 and "has ended before: succeeded" in capsys.readouterr().out
    for action in (["cancel"], ["resume", "--iterations", "2"], ["delete", "--force"], ["undelete"]):
        assert invoke(["sessions", action[0], "s1", *action[1:], "--json"]) == 0
        assert document(capsys)["name"] == "sessions/s1"
    assert server.fake.requests["ResumeSession"][0].additional_iterations == 2
    assert server.fake.requests["DeleteSession"][0].force
    assert invoke(["sessions", "show", "other"]) == 1
    assert "sessions/other does not exist" in capsys.readouterr().err
    assert invoke(["sessions", "show", "a/b/c"]) == 1
    assert "expected an id" in capsys.readouterr().err


def test_steer_and_resume_take_the_options_of_run(server: Background):
    assert invoke([*RUN, "--detach"]) == 0
    (Path.cwd() / "c.json").write_text('{"criteria": [{"title": "fast"}, {"title": "quiet", "on": false}]}')
    assert invoke(["sessions", "steer", "s1", "--criteria", "c.json"]) == 0
    assert [entry.title for entry in server.fake.requests["SteerSession"][0].criteria] == ["fast"]
    budget = ["--budget-steps", "600k", "--budget-tokens", "2M", "--budget-minutes", "1.5", "--budget-dollars", "3"]
    assert invoke(["sessions", "resume", "s1", *budget]) == 0
    extended = server.fake.requests["ResumeSession"][0].budget
    assert (extended.env_steps, extended.tokens, extended.dollars) == (600_000, 2_000_000, 3.0)
    assert extended.wall_time.ToTimedelta().total_seconds() == 90


@pytest.mark.parametrize("name", ["Hopper-v5", "environments/Hopper-v5"])
def test_an_environment_is_named_by_its_id_everywhere(server: Background, name: str):
    (Path.cwd() / "reward.py").write_text("x = 1")
    (Path.cwd() / "cases.csv").write_text(f"env_id,instruction\n{name},hop\n")
    assert invoke(["run", "hop", "--env", name]) == 0
    assert invoke(["train", "reward.py", "--env", name]) == 0
    assert {request.spec.environment for request in server.fake.requests["CreateSession"]} == {"environments/Hopper-v5"}
    invoke(["bench", "cases.csv"])
    assert server.fake.requests["CreateBenchmark"][0].cases[0].environment == "environments/Hopper-v5"
    invoke(["elicit", "hop", "--env", name])
    assert server.fake.requests["Elicit"][-1].environment == "environments/Hopper-v5"


def test_errors_of_a_benchmark_name_the_option_or_the_file(server: Background, capsys: pytest.CaptureFixture[str]):
    (Path.cwd() / "seeds.yaml").write_text("name: c\nenvironments: [CartPole-v1]\nmethods: [{name: a}]\n")
    (Path.cwd() / "cases.csv").write_text("env_id,instruction\nHopper-v5,hop\n")
    assert (invoke(["bench", "seeds.yaml"]), invoke(["bench", "cases.csv", "--set", "speed=1"])) == (1, 1)
    file, option = capsys.readouterr().err.splitlines()
    assert file.startswith("error: seeds.yaml: runs: missing") and option.startswith("error: --set speed: ")


def test_a_watch_as_json_is_an_array_of_events(server: Background, capsys: pytest.CaptureFixture[str]):
    assert invoke([*RUN, "--detach", "--json"]) == 0
    capsys.readouterr()
    assert invoke(["sessions", "watch", "s1", "--json"]) == 0
    assert document(capsys) == []


def test_environments_come_from_the_server_that_is_named(server: Background, capsys: pytest.CaptureFixture[str]):
    card = environment_service_pb2.Environment(
        name="environments/Cat-v1", title="A cat", observation_size=3, max_episode_steps=10, time_step=0.1, text="purrs"
    )
    other = environment_service_pb2.Environment()
    other.CopyFrom(card)
    other.MergeFrom(
        environment_service_pb2.Environment(
            name="environments/Dog-v1", text="barks", methods=["parameters", "code"], target=0.5
        )
    )
    server.fake.environments = [card, other]
    assert invoke(["envs", "list"]) == 0
    table = capsys.readouterr().out
    assert "Cat-v1" in table and "parameters, code" in table
    assert invoke(["envs", "show", "Dog-v1"]) == 0
    assert capsys.readouterr().out == "barks\nMethods: parameters, code\nSolved at a mean return of 0.5\n"
    assert invoke(["envs", "show", "Cat-v1"]) == 0
    assert capsys.readouterr().out == "purrs\n"
    assert invoke(["envs", "list", "--json"]) == 0
    assert document(capsys)["environments"][0]["observation_size"] == 3


def test_artifacts_are_listed_and_fetched(server: Background, capsys: pytest.CaptureFixture[str]):
    server.fake.artifacts = {f"{POLICY}/card.json": b"{}", f"{POLICY}/policy.safetensors": b"x" * 2500}
    assert invoke(["artifacts", "list", "s1", "--json"]) == 0
    assert [each["size"] for each in document(capsys)["artifacts"]] == [2, 2500]
    assert invoke(["artifacts", "get", POLICY, "-o", "policy"]) == 0
    assert (Path.cwd() / "policy" / "policy.safetensors").read_bytes() == b"x" * 2500
    assert invoke(["artifacts", "get", "s9"]) == 1
    assert "no artifact" in capsys.readouterr().err


@pytest.mark.parametrize("command", [["artifacts", "get", POLICY], ["render", "s1"]])
def test_a_path_that_cannot_be_written_is_named(
    server: Background, command: list[str], capsys: pytest.CaptureFixture[str]
):
    server.fake.sessions["sessions/s1"] = ended()
    server.fake.artifacts = {f"{POLICY}/card.json": b"{}", VIDEO: b"film"}
    (Path.cwd() / "file").write_text("")
    assert invoke([*command, "-o", "file/below"]) == 1
    error = capsys.readouterr().err
    assert error.startswith("error: --out: cannot be written: ") and "(got 'file/below'); expected a path" in error


def test_render_fetches_a_session_s_video(server: Background, capsys: pytest.CaptureFixture[str]):
    server.fake.sessions["sessions/s1"] = ended()
    server.fake.artifacts = {VIDEO: b"film"}
    assert invoke(["render", "s1", "-o", "out/film.mp4"]) == 0
    assert (Path.cwd() / "out" / "film.mp4").read_bytes() == b"film"
    assert [path.name for path in (Path.cwd() / "out").iterdir()] == ["film.mp4"]
    assert invoke(["render", "none.npz"]) == 1
    assert "no file" in capsys.readouterr().err


def test_the_server_renders_where_this_machine_cannot(server: Background, monkeypatch: pytest.MonkeyPatch):
    rollout = "sessions/s1/iterations/1/rollouts/7_median.npz"
    server.fake.artifacts = {rollout: b"states", rollout.replace("rollouts", "videos").replace("npz", "mp4"): b"film"}
    reasons = iter(["EGL_MISSING", "NO_VIDEO"])

    def draw(recorded: Path, target: Path) -> None:
        raise errors.FailedPrecondition("not here", reason=next(reasons))

    monkeypatch.setattr("dressage.cli.videos.draw", draw)
    assert invoke(["render", rollout, "-o", "film.mp4"]) == 0
    assert (Path.cwd() / "film.mp4").read_bytes() == b"film"
    assert invoke(["render", rollout, "-o", "other.mp4"]) == 1
    assert [request.rollout for request in server.fake.requests["GetRolloutVideo"]] == [rollout]


def test_an_address_without_a_server_is_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    import dressage.client.calls as calls

    monkeypatch.setattr(calls.CallPolicy, "__init__", lambda self: None)
    monkeypatch.setattr(calls.CallPolicy, "total_seconds", 0.3)
    assert invoke(["sessions", "list", "--address", "127.0.0.1:9"]) == 1
    assert "no answer from 127.0.0.1:9" in capsys.readouterr().err


def test_ctrl_c_does_not_cancel_the_session_of_a_running_server(server: Background):
    async def held() -> asyncio.Event:
        return asyncio.Event()

    server.fake.hold_stream = asyncio.run_coroutine_threadsafe(held(), server._loop).result(5)
    process = subprocess.Popen(
        [sys.executable, "-m", "dressage.cli.main", *RUN],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=dict(os.environ),
    )
    try:
        deadline = time.monotonic() + 30
        while not server.fake.requests["WatchSession"]:
            assert time.monotonic() < deadline and process.poll() is None
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=30)
    finally:
        process.kill()
    assert process.returncode == 130
    assert "dressage sessions watch s1" in err and "Traceback" not in err
    assert not server.fake.requests["CancelSession"]


def test_sigterm_interrupts_a_session_and_prints_how_to_resume_it(
    server: Background, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    @asynccontextmanager
    async def own(*_: object, **__: object) -> AsyncIterator[Connection]:
        async with AsyncClient.connect(server.address) as client:
            yield Connection(client, "stack", None, " --data-dir here")

    @asynccontextmanager
    async def signals() -> AsyncIterator[asyncio.Queue[int]]:
        queue = asyncio.Queue[int]()
        queue.put_nowait(signal.SIGTERM)
        yield queue

    async def held() -> asyncio.Event:
        return asyncio.Event()

    server.fake.hold_stream = asyncio.run_coroutine_threadsafe(held(), server._loop).result(5)
    monkeypatch.setattr(work, "connect", own)
    monkeypatch.setattr(work, "_signals", signals)
    assert invoke(RUN) == 143
    captured = capsys.readouterr()
    assert "`dressage serve` on this data folder resumes sessions/s1" in captured.err
    assert "interrupted" in captured.out and "dressage sessions watch s1 --data-dir here" in captured.out


@pytest.mark.parametrize(
    ("action", "message"),
    [
        (["steer", "lower"], "uses it in its next iteration once a server or"),
        (["steer", "--reward", str(EXAMPLE)], "evaluates it next once a server or"),
        (["delete"], "is deleted\n"),
    ],
    ids=["steer", "reward", "delete"],
)
def test_directions_for_an_interrupted_session_wait_for_a_server(
    server: Background,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    action: list[str],
    message: str,
):
    assert invoke([*RUN, "--detach"]) == 0

    @asynccontextmanager
    async def read_only(*_: object, **__: object) -> AsyncIterator[Connection]:
        async with AsyncClient.connect(server.address) as client:
            yield Connection(client, "stack", None, " --data-dir here", read_only=True)

    monkeypatch.setattr("dressage.local.connection.connect", read_only)
    capsys.readouterr()
    assert invoke(["sessions", action[0], "s1", *action[1:]]) == 0
    out = capsys.readouterr().out
    assert message in out
    assert ("dressage sessions watch s1 --data-dir here" in out) == ("once" in message)


@pytest.mark.parametrize("again", ["watch", "resume"])
def test_watch_and_resume_end_with_the_learning_curve(
    server: Background, again: str, capsys: pytest.CaptureFixture[str]
):
    pytest.importorskip("matplotlib")
    row = json.dumps({"step": 1000, "episode_return": 3.0})
    server.fake.artifacts = {f"{POLICY.removesuffix('/policy')}/metrics.jsonl": row.encode()}
    assert invoke([*RUN, "--detach"]) == 0
    follow = listings.watch("s1", as_json=False)
    if again == "resume":
        follow = listings.resume("s1", iterations=0, as_json=False)

    async def later() -> None:
        async with AsyncClient.connect(server.address) as client:
            await follow(Connection(client, "stack", None))

    asyncio.run(later())
    assert (Path.cwd() / "learning-curve-s1.png").is_file()
    assert "learning-curve-s1.png" in capsys.readouterr().out


def test_show_names_an_existing_learning_curve(server: Background, tmp_path: Path):
    policy = tmp_path / "artifacts" / POLICY
    picture = policy.parent / "learning_curve.png"

    async def named() -> Path | None:
        async with AsyncClient.connect(server.address) as client:
            result, _ = await listings.session("s1")(Connection(client, "joined", tmp_path / "artifacts"))
            return result.picture

    assert invoke(RUN) == 0
    policy.mkdir(parents=True)
    assert asyncio.run(named()) is None
    picture.write_bytes(b"picture")
    assert asyncio.run(named()) == picture
