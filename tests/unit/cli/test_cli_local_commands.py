"""What runs without a server: check, eval, export, doctor, plan, discovery of a local stack's refusals."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dressage import errors
from dressage.api.v1 import session_pb2, session_service_pb2
from dressage.cli import doctor, plan, policies
from dressage.cli.main import invoke
from dressage.local.stack import check_exposure
from dressage.policies import load
from dressage.sdk import evaluation
from dressage.sdk.scores import Judgment

EXAMPLES = Path(__file__).parents[3] / "examples"


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("DRESSAGE_ADDRESS", raising=False)
    monkeypatch.setenv("DRESSAGE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("COLUMNS", "160")


def document(capsys: pytest.CaptureFixture[str]) -> Any:
    return json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("name", ["run_forward.py", "per_step_forward.py"])
def test_the_example_rewards_pass_their_check(name: str, capsys: pytest.CaptureFixture[str]):
    assert invoke(["check", str(EXAMPLES / "rewards" / name), "--env", "HalfCheetah-v5", "--json"]) == 0
    report = document(capsys)
    assert report["ok"] and report["style"] == ("per_step" if "per_step" in name else "vectorised")


def test_check_names_file_line_and_rule(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    path = tmp_path / "bad.py"
    path.write_text("import os\n\ndef reward(state, action, next_state, memory, np):\n    return {}\n")
    assert invoke(["check", str(path), "--env", "HalfCheetah-v5"]) == 1
    assert f"{path}:1: " in capsys.readouterr().out
    assert invoke(["check", str(path), "--env", "Nothing-v1"]) == 1
    assert "HalfCheetah-v5" in capsys.readouterr().err, "the known environments are named"


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    from dressage.envs.cards import load_card
    from dressage.policies import PolicyCard, save_bundle
    from dressage.policies.bundle import tensor_shapes

    card = load_card("InvertedPendulum-v5")
    description = PolicyCard(
        environment=card.id,
        observation_size=card.observation_size,
        action_low=tuple(component.low for component in card.action),
        action_high=tuple(component.high for component in card.action),
        hidden_sizes=(4,),
    )
    rng = np.random.default_rng(0)
    weights = {
        name: np.abs(rng.normal(size=shape)).astype(np.float64 if name.startswith("obs_") else np.float32)
        for name, shape in tensor_shapes(description).items()
    }
    save_bundle(tmp_path / "bundle", weights=weights, card=description)
    return tmp_path / "bundle"


def test_eval_puts_the_random_policy_beside_and_repeats_itself(bundle: Path, capsys: pytest.CaptureFixture[str]):
    facts = []
    for _ in range(2):
        assert invoke(["eval", str(bundle), "--episodes", "5", "--json"]) == 0
        facts.append(document(capsys))
    for name in ("policy", "random"):
        low, high = facts[0][name]["return_interval"]
        assert low <= facts[0][name]["mean_return"] <= high
        assert facts[0][name]["mean_return"] == facts[1][name]["mean_return"]
    assert facts[0]["environment"] == "InvertedPendulum-v5"
    assert invoke(["eval", str(bundle), "--episodes", "2"]) == 0
    assert "random" in capsys.readouterr().out


def test_eval_runs_in_batches_and_their_size_changes_no_episode(bundle: Path, monkeypatch: pytest.MonkeyPatch):
    from dressage.envs import reference

    held: list[int] = []
    rollout = reference.rollout

    def counted(policy: Any, env_id: str, seeds: Any, *rest: Any, **more: Any) -> Any:
        held.append(len(seeds))
        return rollout(policy, env_id, seeds, *rest, **more)

    monkeypatch.setattr(reference, "rollout", counted)
    many = evaluation.measure(load(bundle), episodes=70, seed=9)
    assert max(held) <= 16 and sum(held) == 2 * 70
    assert many["policy"]["episodes"] == many["random"]["episodes"] == 70
    monkeypatch.setattr(evaluation, "_TOGETHER", 7)
    again = evaluation.measure(load(bundle), episodes=70, seed=9)
    for name in ("policy", "random"):
        for figure in ("mean_return", "return_interval", "mean_length"):
            assert again[name][figure] == pytest.approx(many[name][figure])


def test_eval_measures_speed_over_all_parts():
    from dressage.envs.options import EnvOptions
    from dressage.envs.reference import motionless_policy, rollout

    env_id, options = "HalfCheetah-v5", EnvOptions(max_episode_steps=20)
    act = motionless_policy(env_id)
    episodes = evaluation.run_episodes(lambda _: act, env_id, options, range(5, 10), together=2)
    known = rollout(act, env_id, range(5, 10), options)
    assert episodes.returns == pytest.approx([episode.reward.sum() for episode in known])
    assert episodes.lengths == (20,) * 5
    assert episodes.speeds == pytest.approx([episode.x_velocity[1:].mean() for episode in known])


def test_eval_refuses_a_folder_that_is_no_bundle(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert invoke(["eval", str(tmp_path / "nothing")]) == 1
    assert "no folder of a policy bundle" in capsys.readouterr().err
    (tmp_path / "empty").mkdir()
    assert invoke(["eval", str(tmp_path / "empty")]) == 1
    assert "card.json" in capsys.readouterr().err


def test_export_writes_an_onnx_file(bundle: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert invoke(["export", str(bundle), "--format", "onnx", "-o", str(tmp_path / "p" / "x.onnx")]) == 0
    assert Path(capsys.readouterr().out.strip()).stat().st_size > 0


@pytest.fixture(params=["linear", "mlp", "random_features", "table"])
def searched(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """The bundle of a policy of each kind, as search methods make it."""
    from dressage.envs.cards import load_card
    from dressage.policies import kinds, save_bundle

    spec = kinds.PolicySpec.of(request.param, load_card("CartPole-v1"), hidden=(8,))
    kind = kinds.kind(request.param)
    weights, card = kind.initial(spec, seed=1), kind.card(spec, environment="CartPole-v1")
    return save_bundle(tmp_path / request.param, weights=weights, card=card)


def test_every_kind_exports_to_onnx_and_acts_there(searched: Path, tmp_path: Path):
    runtime = pytest.importorskip("onnxruntime")
    out = tmp_path / "p" / "x.onnx"
    assert invoke(["export", str(searched), "--format", "onnx", "-o", str(out)]) == 0
    rows = np.random.default_rng(0).standard_normal((20, 4)).astype(np.float32)
    given = np.array([3, 0, 1, 2]) if searched.name == "table" else rows
    session = runtime.InferenceSession(str(out), providers=["CPUExecutionProvider"])
    actions = session.run(["action"], {"observation": given})[0]
    assert actions.tolist() == load(searched).act(given).tolist()


def test_export_to_sb3_is_for_mlps(searched: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    if searched.name == "mlp":
        pytest.importorskip("stable_baselines3")
    out = tmp_path / "sb3"
    failed = invoke(["export", str(searched), "--format", "sb3", "-o", str(out)])
    if searched.name == "mlp":
        assert not failed and sorted(path.name for path in out.iterdir()) == ["policy.zip", "vecnormalize.pkl"]
        return
    message = capsys.readouterr().err
    assert failed == 1 and f"no policy of kind {searched.name}" in message and "--format onnx" in message
    assert not out.exists()


def test_eval_plays_every_kind(searched: Path, capsys: pytest.CaptureFixture[str]):
    failed = invoke(["eval", str(searched), "--episodes", "2", "--json"])
    if searched.name == "table":  # CartPole's observations are not discrete
        assert failed == 1 and "a table needs discrete observations" in capsys.readouterr().err
        return
    assert not failed and document(capsys)["policy"]["mean_return"] > 0


@pytest.mark.parametrize("named", [".", "policy.safetensors", "../bundle/", ".."])
def test_export_is_named_after_the_bundles_folder(
    bundle: Path, named: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    here = bundle if named != ".." else bundle / "below"
    here.mkdir(exist_ok=True)
    monkeypatch.chdir(here)
    assert invoke(["export", named, "--format", "onnx"]) == 0
    assert capsys.readouterr().out.strip() == "bundle.onnx" and (here / "bundle.onnx").is_file()
    assert policies._default_out(named, "sb3") == Path("bundle-sb3")
    assert policies._default_out("sessions/run-1", "onnx") == Path("run-1.onnx")


MODEL = """<mujoco><worldbody><body name="slider"><joint name="slide" type="slide" axis="1 0 0"/><geom size="0.1"/></body>
</worldbody><actuator><motor joint="slide" ctrlrange="-1 1"/></actuator></mujoco>"""


@pytest.fixture
def model(tmp_path: Path) -> str:
    path = tmp_path / "two.xml"
    path.write_text(MODEL)
    return str(path)


def test_custom_environments_are_kept_in_the_given_data_folder(
    model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    here = ["--data-dir", str(tmp_path / "other")]
    monkeypatch.delenv("DRESSAGE_ENVIRONMENTS", raising=False)
    assert invoke(["envs", "add", model, *here]) == 0
    assert (tmp_path / "other" / "environments" / "mjcf:two" / "card.json").is_file()
    reward = tmp_path / "reward.py"
    reward.write_text(
        "LATEX = '-a^2'\nTERMS = {'still': 'no effort'}\n\n\n"
        "def reward(state, action, next_state, memory, np):\n    return {'still': -np.square(action).sum(-1)}\n"
    )
    assert invoke(["check", str(reward), "--env", "mjcf:two", "--allow-unsandboxed", *here]) == 0
    capsys.readouterr()
    for more, code in ((here, 0), ([], 1), (["--data-dir", str(tmp_path / "home")], 1)):
        assert invoke(["envs", "show", "mjcf:two", *more]) == code
        assert invoke(["envs", "list", "--json", *more]) == 0
        assert ("mjcf:two" in capsys.readouterr().out) == (code == 0)
    assert "DRESSAGE_ENVIRONMENTS" not in os.environ
    monkeypatch.setenv("DRESSAGE_ENVIRONMENTS", str(tmp_path / "other" / "environments"))
    assert invoke(["envs", "show", "mjcf:two", "--data-dir", str(tmp_path / "home")]) == 0, (
        "the variable has precedence"
    )
    assert os.environ["DRESSAGE_ENVIRONMENTS"] == str(tmp_path / "other" / "environments")


@pytest.mark.parametrize(
    ("option", "value"), [("--name", "swing"), ("--time-step", "0.5"), ("--episode-steps", "1000")]
)
def test_options_of_models_are_refused_for_registered_environments(
    option: str, value: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    here = ["--data-dir", str(tmp_path / "other")]
    assert invoke(["envs", "add", "gymnasium:Pendulum-v1", option, value, *here]) == 1
    error = capsys.readouterr().err
    assert error.startswith(f"error: {option}: not supported for gymnasium:Pendulum-v1 (got ") and value in error
    assert "a model's .xml file" in error
    assert ("--env-option max_episode_steps=N" in error) == (option == "--episode-steps")
    assert not list((tmp_path / "other").rglob("card.json"))


@pytest.mark.parametrize(("given", "steps"), [((), 1000), (("--episode-steps", "70"), 70)])
def test_a_models_episode_has_the_given_number_of_steps(
    given: tuple[str, ...], steps: int, model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    assert invoke(["envs", "add", model, *given, "--json", "--data-dir", str(tmp_path / "other")]) == 0
    assert document(capsys)["max_episode_steps"] == steps


@pytest.mark.parametrize("form", ["onnx", "sb3"])
def test_a_path_that_cannot_be_written_is_named_with_its_option(
    bundle: Path, tmp_path: Path, form: str, capsys: pytest.CaptureFixture[str]
):
    (tmp_path / "file").write_text("")
    out = tmp_path / "file" / "below"
    assert invoke(["export", str(bundle), "--format", form, "-o", str(out)]) == 1
    error = capsys.readouterr().err
    assert error.startswith("error: --out: cannot be written: ") and f"(got '{out}'); expected a path" in error
    assert "bug in dressage" not in error


def test_a_folder_of_environments_that_cannot_be_written_to_is_named(
    model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    (tmp_path / "file").write_text("")
    assert invoke(["envs", "add", model, "--data-dir", str(tmp_path / "file")]) == 1
    error = capsys.readouterr().err
    assert "file/environments" in error and "--data-dir" in error and "bug in dressage" not in error


def test_environments_are_listed_without_a_server(capsys: pytest.CaptureFixture[str]):
    assert invoke(["envs", "list", "--json"]) == 0
    assert "HalfCheetah-v5" in {card["id"] for card in document(capsys)["environments"]}
    assert invoke(["envs", "show", "HalfCheetah-v5"]) == 0
    assert "x_velocity" in capsys.readouterr().out


def test_the_doctor_names_keys_and_never_shows_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(doctor, "_egl", lambda: doctor.Finding("EGL", "not tried here", works=True))
    findings = doctor.examine(tmp_path / "not" / "there", {"OPENAI_API_KEY": "sk-very-secret"})
    keys = next(finding for finding in findings if finding.component == "API keys")
    assert keys.status == "OPENAI_API_KEY"
    assert "very-secret" not in repr(findings)
    assert {"python", "mujoco", "jax", "EGL", "sandbox", "disk", "server"} <= {each.component for each in findings}


def test_a_check_that_raises_is_a_finding():
    def broken() -> doctor.Finding:
        raise OSError("no such thing")

    finding = doctor._run_check(broken)
    assert not finding.works and "no such thing" in finding.status


def test_the_doctor_names_missing_packages(monkeypatch: pytest.MonkeyPatch):
    finding = doctor._package("not-a-package-anyone-has", "get it there")
    assert (finding.works, finding.remedy) == (False, "get it there")
    assert not doctor._package("numpy", "", least=(99,)).works


@pytest.mark.parametrize("address", ["0.0.0.0:7400", "10.0.0.1:1", "[::]:7400", "example.org:80"])
def test_nothing_is_served_to_others_without_a_token(address: str):
    with pytest.raises(errors.InvalidArgument, match="token"):
        check_exposure(address, None)
    check_exposure(address, "t")
    for local in ("127.0.0.1:0", "localhost:7400", "[::1]:1"):
        check_exposure(local, None)


def test_spread_is_the_sample_deviation():
    judgment = Judgment.of(session_pb2.Judgment(score=0.5, samples=[0.2, 0.5, 0.8]))
    assert judgment.spread == pytest.approx(np.std([0.2, 0.5, 0.8], ddof=1))
    assert Judgment.of(session_pb2.Judgment(score=0.5)).interval is None


def test_a_plan_with_a_language_model_has_a_price_and_is_confirmed():
    estimate = session_service_pb2.EstimateSessionResponse(
        uses_language_model=True,
        model_calls_per_iteration=4,
        dollars_per_iteration=0.05,
        least_model_calls_per_iteration=1,
        most_model_calls_per_iteration=40,
        least_dollars_per_iteration=0.01,
        most_dollars_per_iteration=0.5,
        max_episode_steps=1000,
        terminates_when_unhealthy=True,
        options_of_author=["max_episode_steps", "terminate_when_unhealthy"],
    )
    estimate.spec.roles["judge"].model = "openai/y"
    estimate.spec.model, estimate.spec.max_iterations = "openai/x", 3
    questions: list[str] = []
    assert plan.confirm(estimate, ask=lambda question: bool(questions.append(question))) is False
    assert questions and plan.confirm(estimate, ask=None)
    assert "the author may change the length" not in plan.plan_text(estimate).plain
    estimate.spec.reward.tune_hyperparameters, estimate.spec.reward.steps_per_member = True, 100
    estimate.env_steps_per_iteration = 100
    text = plan.plan_text(estimate).plain
    # Two later iterations with a second config, four times as long.
    assert "at most 1,700 environment steps in all" in text
    assert "openai/x, judge: openai/y: about 4 calls an iteration (1 to 40), about 0.050 $ (0.010 to 0.50 $)" in text
    assert "at most 1,000 steps; an unhealthy state ends them; the author may change max_episode_steps and" in text
    assert plan.plan_dict(estimate)["max_dollars"] == pytest.approx(1.5)
    estimate.ClearField("dollars_per_iteration")
    assert "price unknown" in plan.plan_text(estimate).plain


def test_the_plan_of_a_replay_names_recorded_replies():
    estimate = session_service_pb2.EstimateSessionResponse(max_episode_steps=1000)
    estimate.spec.model = "recorded/low_crawl"
    assert "recorded/low_crawl: recorded replies, no language model, no cost" in plan.plan_text(estimate).plain
