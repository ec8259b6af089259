"""Sessions from Python against a scripted server on real gRPC; policies, evaluation and arguments."""

from __future__ import annotations

import asyncio
import inspect
import json
import logging
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import FrozenInstanceError, replace
from pathlib import Path
from typing import Any

import dressage
import numpy as np
import pytest
import structlog
from dressage import errors
from dressage.api.arguments import STEER
from dressage.api.v1 import event_pb2, session_pb2
from dressage.envs.cards import load_card
from dressage.policies import Policy, kinds, save_bundle
from dressage.sdk import running
from dressage.sdk.argument_names import option_names, python_names
from dressage.sdk.arguments import own_environments, preserved_logging
from dressage.sdk.specs import make_spec

from tests.fakes.orchestrator import Background, FakeOrchestrator

MEMBERS = "sessions/s1/iterations/1/assignments/train/members"
POLICY, VIDEO = f"{MEMBERS}/default-s0/policy", f"{MEMBERS}/default-s0/videos/9_median.mp4"


def policy_of(kind: str = "linear", env_id: str = "CartPole-v1") -> Policy:
    spec = kinds.PolicySpec.of(kind, load_card(env_id), hidden=(8,))
    module = kinds.kind(kind)
    return Policy(weights=module.initial(spec, seed=1), card=module.card(spec, environment=env_id))


def ended(state: session_pb2.SessionState.ValueType = session_pb2.SESSION_STATE_SUCCEEDED) -> session_pb2.Session:
    session = session_pb2.Session(state=state, best_iteration="sessions/s1/iterations/1", method="reward", goal="0.7")
    session.best_policy, session.best_video, session.best_score = POLICY, VIDEO, 0.8
    session.best_judgment.score, session.best_judgment.passed = 0.8, True
    session.best_judgment.samples.extend([0.7, 0.9])
    session.best_judgment.interval_low, session.best_judgment.interval_high = 0.7, 0.9
    session.best_judgment.criteria.add(name="speed <1>", score=0.75)
    session.cost.requests, session.cost.dollars = 3, 0.25
    session.start_time.FromSeconds(100)
    session.end_time.FromSeconds(160)
    session.returns.mean, session.env_steps = 321.0, 5000
    return session


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Background]:
    monkeypatch.delenv("DRESSAGE_ADDRESS", raising=False)
    monkeypatch.setenv("DRESSAGE_HOME", str(tmp_path / "home"))
    folder = policy_of().save(tmp_path / "bundle")
    metrics = "".join(json.dumps({"step": step, "episode_return": step / 10}) + "\n" for step in (100, 200, 300))
    fake = FakeOrchestrator(
        script=[event_pb2.Event(iteration=1, scored=event_pb2.Scored(score=0.8, passed=True))] * 3, ended=ended()
    )
    fake.artifacts = {
        **{f"{POLICY}/{path.name}": path.read_bytes() for path in folder.iterdir()},
        VIDEO: b"mp4" * 1000,
        f"{MEMBERS}/default-s0/metrics.jsonl": metrics.encode(),
    }
    with Background(fake) as running_server:
        yield running_server


def test_a_session_of_a_server_has_a_typed_result(server: Background, capsys: pytest.CaptureFixture[str]):
    result = dressage.run("balance", env="CartPole-v1", seeds=2, budget_minutes=1.5, address=server.address)
    assert (result.session, result.state, result.passed, result.score) == ("sessions/s1", "succeeded", True, 0.8)
    assert result.judgment is not None and result.judgment.interval == (0.7, 0.9)
    assert result.judgment.criteria == {"speed <1>": 0.75} and result.confirmation is None
    assert (result.cost.dollars, result.seconds, result.stock_return) == (0.25, 60.0, 321.0)
    assert result.reward_source == "def reward(…): …"
    assert result.curve is not None and result.curve.picture is not None
    series = result.curve.training["default"]
    assert (series.steps[0], series.steps[-1], series.mean[-1], series.seeds) == (100.0, 300.0, 30.0, 1)
    assert result.video is not None and result.video.read_bytes() == b"mp4" * 1000
    action, state = result.policy.predict(np.zeros(4))
    assert state is None and int(action) == int(policy_of().act(np.zeros(4)))
    assert result.policy is result.policy
    with pytest.raises(FrozenInstanceError):
        result.score = 1.0  # type: ignore[misc]
    spec = server.fake.requests["CreateSession"][0].spec
    assert (spec.environment, spec.reward.seeds, spec.budget.wall_time.seconds) == ("environments/CartPole-v1", 2, 90)
    out = capsys.readouterr()
    assert "score 0.80, passed" in out.out and str(result) == "sessions/s1: succeeded, score 0.80, CartPole-v1"


def test_a_notebook_shows_score_judgment_curve_and_video(server: Background):
    html = dressage.run("balance & <run>", env="CartPole-v1", address=server.address, quiet=True)._repr_html_()
    assert "succeeded" in html and "0.80 ± 0.14 over 2 seeds, 95 % interval 0.70 to 0.90" in html and "0.2500 $" in html
    assert "balance &amp; &lt;run&gt;" in html and "speed &lt;1&gt;" in html
    assert html.count("data:image/png;base64,iVBOR") == 1 and html.count("<video controls") == 1


def test_a_result_is_read_again_and_reports_what_is_missing(server: Background):
    name = dressage.run("balance", env="CartPole-v1", address=server.address, quiet=True).session
    result = dressage.result(name, address=server.address)
    assert (result.session, result.score) == (name, 0.8)
    assert dressage.load("s1", address=server.address).description.environment == "CartPole-v1"
    server.fake.artifacts.clear()
    assert "no artifact" in result._repr_html_()
    with pytest.raises(errors.NotFound, match="no artifact"):
        _ = result.policy


def test_events_are_passed_on_and_quiet_shows_nothing(server: Background, capsys: pytest.CaptureFixture[str]):
    events: list[event_pb2.Event] = []
    dressage.run("balance", env="CartPole-v1", address=server.address, quiet=True, on_event=events.append)
    assert [event.sequence for event in events] == [1, 2, 3]
    assert capsys.readouterr() == ("", "")


def test_a_failed_session_is_an_error_with_its_remedy(server: Background):
    server.fake.ended = session_pb2.Session(state=session_pb2.SESSION_STATE_FAILED)
    server.fake.ended.failure.message, server.fake.ended.failure.remedy = "no memory.", "Lower the seeds."
    server.fake.ended.failure.reason = "OOM_KILLED"
    with pytest.raises(dressage.SessionFailed, match=r"sessions/s1 failed: no memory\. Lower the seeds\.") as caught:
        dressage.run("balance", env="CartPole-v1", address=server.address, quiet=True)
    server.fake.ended.failure.message = "no memory. Lower the seeds."
    with pytest.raises(dressage.SessionFailed, match=r"failed: no memory\. Lower the seeds\.$"):
        dressage.run("balance", env="CartPole-v1", address=server.address, quiet=True)
    assert caught.value.reason == "OOM_KILLED" and caught.value.metadata == {"session": "sessions/s1"}


def test_training_sends_the_reward_and_no_author(server: Background):
    server.fake.ended = session_pb2.Session(state=session_pb2.SESSION_STATE_SUCCEEDED)
    result = dressage.train("LATEX = 'r'\n", env="Hopper-v5", configs={"fast": {"hidden_sizes": (32, 16), "epochs": 2}},
                            address=server.address, quiet=True)  # fmt: skip
    spec = server.fake.requests["CreateSession"][0].spec
    assert spec.reward.train_only and spec.reward.reward_source == "LATEX = 'r'\n" and spec.max_iterations == 1
    [config] = spec.reward.configs
    assert (config.id, config.hyperparameters.hidden_sizes, config.hyperparameters.epochs) == ("fast", [32, 16], 2)
    assert (result.score, result.passed, result.judgment, result.curve) == (None, False, None, None)
    with pytest.raises(errors.FailedPrecondition, match="has no policy"):
        _ = result.policy


def test_the_address_of_the_environment_is_used(server: Background, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("DRESSAGE_ADDRESS", server.address)
    monkeypatch.setenv("DRESSAGE_TOKEN", "secret")
    dressage.run("balance", env="CartPole-v1", quiet=True, detach=True)
    assert server.fake.metadata["CreateSession"][0]["authorization"] == "Bearer secret"
    assert not server.fake.requests["WatchSession"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"intent": "", "env": "Hopper-v5"}, r"^intent: .*got ''"),
        ({"intent": "hop"}, r"^env: .*got ''"),
        ({"intent": "hop", "env": "Hopper-v5", "video": "some"}, r"^video: .*got 'some'"),
        ({"intent": "hop", "env": "Hopper-v5", "video": True}, r"^video: .*got True.*one of deciding, none, all, only"),
        ({"intent": "hop", "env": "Hopper-v5", "judge": len}, r"^judge: .*expected source text or a path"),
        ({"intent": "hop", "env": "Hopper-v5", "env_options": {"max_steps": 3}}, r"^env_options\.max_steps: unknown"),
        ({"intent": "hop", "env": "Hopper-v5", "configs": {"a": {"rate": 1}}}, r"^configs\.a\.rate: unknown"),
        ({"intent": "hop", "env": "Hopper-v5", "criteria": []}, "^criteria: not a list of 1 to 32 criteria"),
        ({"intent": "hop", "env": "Hopper-v5", "criteria": [{"name": "x"}]}, r"^criteria\[0\]: .*got"),
        ({"intent": "hop", "env": "Hopper-v5", "method": "none"}, r"^method: .*got 'none'"),
        ({"intent": "hop", "env": "Hopper-v5", "judge": "none.py"}, r"^judge: .*got 'none.py'"),
        ({"intent": "hop", "env": "Hopper-v5", "api_base": "http://a"}, r"^api_base: .*got"),
        ({"intent": "hop", "replay": "folder"}, "^intent: not allowed with a replay.*got 'hop'"),
    ],
)
def test_a_wrong_argument_is_named_as_python_names_it(server: Background, arguments: dict[str, Any], message: str):
    with pytest.raises(errors.InvalidArgument, match=message):
        dressage.run(**arguments, address=server.address, quiet=True)
    assert not server.fake.requests["CreateSession"]


def _interrupt(event: event_pb2.Event) -> None:
    if event.sequence == 2:
        raise KeyboardInterrupt


@pytest.mark.parametrize("kind", ["stack", "remote"])
def test_an_interrupt_cancels_only_what_nothing_else_would_continue(
    server: Background, kind: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    server.fake.hold_stream = asyncio.Event()  # the session never ends by itself
    connect = running.connect

    @asynccontextmanager
    async def of_kind(options: Any, *, start: Any) -> AsyncIterator[Any]:
        async with connect(options, start=start) as connection:
            yield replace(connection, kind=kind)

    monkeypatch.setattr(running, "connect", of_kind)
    with pytest.raises(KeyboardInterrupt):
        dressage.run("balance", env="CartPole-v1", address=server.address, quiet=True, on_event=_interrupt)
    assert len(server.fake.requests["CancelSession"]) == (1 if kind == "stack" else 0)
    printed = capsys.readouterr().err
    assert ("cancelling sessions/s1" in printed) == (kind == "stack")
    assert ("sessions cancel s1 --address" in printed) == (kind == "remote")


def test_the_text_of_an_error_is_not_renamed():
    with pytest.raises(errors.InvalidArgument) as caught, python_names():
        raise errors.InvalidArgument("spec.seed: bad; see spec.seed", field="spec.seed")
    assert caught.value.message == str(caught.value) == "seed: bad; see spec.seed"
    assert caught.value.field == "seed"


NAMES = [
    ("spec.intent", "intent", "INTENT"),
    ("spec.environment", "env", "--env"),
    ("spec.environment_options.max_episode_steps", "env_options.max_episode_steps", "--env-option max_episode_steps"),
    ("spec.video_options.votes", "video_options.votes", "--video-option votes"),
    ("spec.video_judging", "video", "--video"),
    ("spec.reward.seeds", "seeds", "--seeds"),
    ("spec.reward.steps_per_member", "steps", "--steps"),
    ("spec.reward.configs", "configs", "--config"),
    ("spec.reward.configs[1].hyperparameters.learning_rate", "configs.learning_rate", "--config learning_rate"),
    ("spec.reward.evaluations", "settings.evaluations", "--set evaluations"),
    ("spec.parameters.search", "settings.search", "--set search"),
    ("spec.parameters.target", "target", "--target"),
    ("spec.program.grammar.depth", "settings.grammar.depth", "--set grammar.depth"),
    ("spec.budget.dollars", "budget_dollars", "--budget-dollars"),
    ("spec.budget.wall_time", "budget_minutes", "--budget-minutes"),
    ("spec.custom.scale", "settings.scale", "--set scale"),
    ("spec.custom", "method", "--method"),
    ("spec.roles", "model", "--model"),
    ("spec.seed", "seed", "--seed"),
    ("template.reward.early_stop", "early_stop", "--early-stop"),
]


@pytest.mark.parametrize(("field", "argument", "option"), NAMES)
def test_fields_of_a_spec_are_named_as_arguments_and_as_options(field: str, argument: str, option: str):
    for names, name in ((python_names, argument), (option_names, option)):
        with pytest.raises(errors.InvalidArgument) as caught, names():
            raise errors.InvalidArgument(field=field, value=3, expected="4 (as `spec.seed` states)")
        assert caught.value.message == f"{name}: invalid value (got 3); expected 4 (as `spec.seed` states)"
        assert caught.value.field == name


def test_fields_that_are_not_options_of_the_command_line_keep_their_names():
    violations = [errors.Violation("spec.reward.seeds", "too many"), errors.Violation("spec.environment", "unknown")]
    with pytest.raises(errors.InvalidArgument) as caught, option_names(only={"env", "steps"}, file="hop.yaml"):
        raise errors.InvalidArgument(violations=violations)
    assert caught.value.message == "hop.yaml reward.seeds: too many; --env: unknown"
    with pytest.raises(errors.InvalidArgument, match=r"^--rebase-to: invalid value$"), option_names(STEER):
        raise errors.InvalidArgument(field="rebase_to")


def test_values_are_those_of_python_or_texts():
    fast = {"learning_rate": 1e-3, "hidden_sizes": [64, 32]}
    texts = {"learning_rate": "1e-3", "hidden_sizes": "64x32"}
    spec = make_spec({"intent": "hop", "env": "Hopper-v5", "configs": {"a": fast, "b": texts}})
    assert spec.reward.configs[0].hyperparameters == spec.reward.configs[1].hyperparameters
    assert list(spec.reward.configs[0].hyperparameters.hidden_sizes) == [64, 32]
    for value in (True, 2.5, "two", None, [1, 2]):
        with pytest.raises(errors.InvalidArgument, match=r"^configs\.a\.epochs: "):
            make_spec({"intent": "hop", "env": "Hopper-v5", "configs": {"a": {"epochs": value}}})


def test_an_unknown_keyword_is_a_type_error_and_help_lists_the_known_ones():
    with pytest.raises(TypeError, match="unexpected keyword argument 'seds'"):
        dressage.run("hop", env="Hopper-v5", seds=3)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="unexpected keyword argument 'model'"):
        dressage.train("r.py", env="Hopper-v5", model="m")  # type: ignore[call-arg]
    assert {"seeds", "budget_minutes", "replay"} <= inspect.signature(dressage.run).parameters.keys()
    assert ":param patience: Checkpoints in a row" in (dressage.run.__doc__ or "")


@pytest.mark.parametrize("kind", ["linear", "mlp", "random_features"])
def test_predict_is_act_for_one_observation_and_many(kind: str):
    policy = policy_of(kind, "Hopper-v5")
    rows = np.random.default_rng(0).standard_normal((5, 11))
    for observation in (rows, rows[0], rows.astype(np.float32).tolist()):
        action, state = policy.predict(observation, deterministic=True)
        np.testing.assert_array_equal(action, policy.act(observation))
        assert state is None and action.shape == (*np.shape(observation)[:-1], 3)
    with pytest.raises(errors.InvalidArgument, match=r"deterministic: .*got False"):
        policy.predict(rows, deterministic=False)


def test_a_policy_is_saved_and_loaded_as_folder_file_and_bytes(tmp_path: Path):
    policy = policy_of("mlp", "Hopper-v5")
    observation = np.random.default_rng(1).standard_normal(11)
    places = [policy.save(tmp_path / "folder"), policy.save(tmp_path / "deep" / "policy.zip"), policy.to_bytes()]
    for place in (*places, str(places[0]), str(places[1])):
        np.testing.assert_array_equal(dressage.load(place).act(observation), policy.act(observation))
    with pytest.raises(errors.InvalidArgument, match="not a policy of Dressage"):
        dressage.load(policy.to_bytes()[:-30])
    with pytest.raises(errors.NotFound, match="no file or folder"):
        dressage.load(tmp_path / "none")
    with pytest.raises(errors.NotFound, match="no folder of a policy bundle"):
        dressage.load("no/such/place")


def test_evaluation_returns_each_episode_and_the_random_policys(tmp_path: Path):
    path = save_bundle(tmp_path / "p", weights=policy_of().weights, card=policy_of().description)
    evaluation = dressage.evaluate(path, episodes=3)
    assert evaluation.environment == "CartPole-v1" and len(evaluation.returns) == 3
    assert evaluation.returns == tuple(map(float, evaluation.lengths))
    assert evaluation.random is not None and len(evaluation.random.returns) == 3
    low, high = evaluation.return_interval
    assert low <= evaluation.mean_return <= high and "CartPole-v1" in evaluation._repr_html_()
    same = dressage.evaluate(policy_of().act, env="CartPole-v1", episodes=3, random_baseline=False)
    assert same.returns == evaluation.returns
    with pytest.raises(errors.InvalidArgument, match=r"episodes: .*got 0"):
        dressage.evaluate(path, episodes=0)
    with pytest.raises(errors.InvalidArgument, match=r"env: .*got None"):
        dressage.evaluate(policy_of().act)
    with pytest.raises(errors.InvalidArgument, match=r"policy: .*got 3"):
        dressage.evaluate(3, env="CartPole-v1")


def test_the_programs_logging_and_environments_are_left_as_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    from dressage.serving import logs

    monkeypatch.delenv("DRESSAGE_ENVIRONMENTS", raising=False)
    root = logging.getLogger()
    before = (root.handlers[:], root.level, structlog.get_config())
    with preserved_logging(), (tmp_path / "log").open("w") as stream, own_environments(tmp_path) as folder:
        logs.configure(stream=stream, level="debug")
        assert root.handlers != before[0]
        assert folder == tmp_path and os.environ["DRESSAGE_ENVIRONMENTS"] == str(tmp_path / "environments")
    assert (root.handlers, root.level, structlog.get_config()) == before
    assert "DRESSAGE_ENVIRONMENTS" not in os.environ
    monkeypatch.setenv("DRESSAGE_ENVIRONMENTS", "/mine")
    with own_environments(tmp_path):
        assert os.environ["DRESSAGE_ENVIRONMENTS"] == "/mine"
    assert os.environ["DRESSAGE_ENVIRONMENTS"] == "/mine"
