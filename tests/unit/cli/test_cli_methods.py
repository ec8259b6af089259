"""`--method` and `--set`: settings of any method by the descriptor of its message."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from dressage import errors
from dressage.api.v1 import session_pb2 as pb
from dressage.cli import output
from dressage.sdk import methods
from dressage.sdk.fields import parse_fields, set_fields
from dressage.sdk.specs import replay_spec
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.json_format import MessageToJson
from google.protobuf.message import Message

from tests.fakes.options import spec_of

PLUGIN = Path(__file__).parents[2] / "plugin"


@pytest.fixture
def plugin(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tests' plug-in is installed."""
    monkeypatch.syspath_prepend(str(PLUGIN))
    methods._spec_type.cache_clear()


def options(**more: Any) -> dict[str, Any]:
    return {"intent": "balance", "env": "CartPole-v1", **more}


def test_settings_of_a_method_of_the_api_are_set_by_its_descriptor():
    spec = spec_of(**options(method="parameters", settings=["target=475.5"]))
    assert spec.WhichOneof("method_spec") == "parameters" and spec.parameters.target == 475.5
    assert spec_of(**options(method="code")).WhichOneof("method_spec") == "code"


def test_a_source_is_read_from_a_file(tmp_path: Path):
    (tmp_path / "policy.py").write_text("class Policy: ...\n")
    spec = spec_of(**options(method="code", settings=[f"policy_source=@{tmp_path}/policy.py"]))
    assert spec.code.policy_source == "class Policy: ...\n"
    with pytest.raises(errors.InvalidArgument, match=r"--set policy_source: cannot be read"):
        spec_of(**options(method="code", settings=["policy_source=@missing.py"]))


def test_reward_is_the_default_and_takes_settings_too():
    spec = spec_of(**options(seeds=4, settings=["judge-last-checkpoint-only=yes", "backend=sb3"]))
    assert (spec.reward.seeds, spec.reward.judge_last_checkpoint_only, spec.reward.backend) == (4, True, "sb3")
    assert spec_of(**options()).WhichOneof("method_spec") == "reward"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["speed=1"], "--set speed: unknown field; expected one of reward_source, train_only"),
        (["seeds"], "--set: .*got 'seeds'.; expected NAME=VALUE"),
        (["seeds=four"], "--set seeds: .*got 'four'.; expected a whole number of 32 bits"),
        (["seeds=1.5"], "a whole number of 32 bits"),
        (["seeds=99999999999"], "a whole number of 32 bits"),
        (["train_only=maybe"], "--set train_only: .*got 'maybe'.; expected true or false"),
        (["seeds=1", "seeds=2"], "--set seeds: .*got '2'.; expected one value"),
        (["configs=a"], "lists of messages are not supported"),
        (["seeds.first=1"], "not a message .*; expected seeds"),
    ],
)
def test_a_wrong_setting_names_field_value_and_what_is_expected(settings: list[str], message: str):
    with pytest.raises(errors.InvalidArgument, match=message):
        spec_of(**options(settings=settings))


def set_texts(message: Message, *texts: str) -> None:
    set_fields(message, parse_fields(texts, field="settings"), field="settings")


def test_lists_enums_and_messages_within_are_set():
    spec = pb.SessionSpec()
    set_texts(spec, "video_judging=ALL", "budget.tokens=5000", "budget.dollars=0.5", "model=m")
    assert (spec.video_judging, spec.budget.tokens, spec.budget.dollars) == (pb.VIDEO_JUDGING_ALL, 5000, 0.5)
    proposal = pb.ParameterProposal(values=[9.0])
    set_texts(proposal, "values=1", "values=-2.5e-3")
    assert list(proposal.values) == [1.0, -0.0025]  # what was there is replaced
    with pytest.raises(errors.InvalidArgument, match=r"got 'some'.; expected one of deciding, none, all"):
        set_texts(spec, "video_judging=some")
    with pytest.raises(errors.InvalidArgument, match=r"one of budget\.env_steps"):
        set_texts(spec, "budget=5")
    for text in ("nan", "inf", "1e999"):
        with pytest.raises(errors.InvalidArgument, match="a number"):
            set_texts(proposal, f"values={text}")


def test_an_unknown_method_names_the_known_ones(plugin: None):
    with pytest.raises(
        errors.InvalidArgument, match=r"got 'magic'.; expected one of reward, parameters, code, program, number"
    ):
        spec_of(**options(method="magic"))


def test_options_of_the_reward_method_are_refused_for_another():
    with pytest.raises(errors.InvalidArgument, match=r"--seeds: .*got '3'.*--set"):
        spec_of(**options(method="parameters", seeds=3))


def test_a_plug_in_is_found_by_its_entry_point(plugin: None):
    spec = spec_of(**options(method="number", settings=["target=7", "start=2.5"]))
    from number_method import NumberSpec

    unpacked = NumberSpec()
    assert spec.custom.Unpack(unpacked) and (unpacked.target, unpacked.start, unpacked.scale) == (7.0, 2.5, 0.0)
    assert methods.method_of(spec) == "number"
    with pytest.raises(errors.InvalidArgument, match="one of target, start, scale"):
        spec_of(**options(method="number", settings=["steps=7"]))


def test_a_plug_in_is_imported_only_when_it_is_asked_for(plugin: None, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(methods, "_spec_type", lambda name: pytest.fail(f"{name} is imported"))
    spec_of(**options(method="parameters", settings=["target=1"]))
    spec_of(**options(seeds=2))


def test_a_broken_plug_in_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    folder = tmp_path / "broken-1.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: broken\nVersion: 1.0\n")
    (folder / "entry_points.txt").write_text("[dressage.methods]\nbroken = no_such_module:METHOD\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(errors.FailedPrecondition, match=r"'broken' .*cannot be imported: ModuleNotFoundError"):
        spec_of(**options(method="broken"))
    assert methods.broken_plugins() == [
        "the plug-in 'broken' (no_such_module:METHOD) cannot be imported: ModuleNotFoundError: No module named 'no_such_module'"
    ]


def test_a_recording_keeps_its_method(plugin: None, tmp_path: Path):
    spec = spec_of(**options(method="number", settings=["target=7", "start=2"]))
    (tmp_path / "session.json").write_text(MessageToJson(spec))
    base = replay_spec(tmp_path, {})
    again = spec_of(base, settings=["start=3"])
    from number_method import NumberSpec

    unpacked = NumberSpec()
    assert again.custom.Unpack(unpacked) and (unpacked.target, unpacked.start) == (7.0, 3.0)
    assert spec_of(base).custom == base.custom
    with pytest.raises(errors.InvalidArgument, match=r"^method: not allowed"):
        replay_spec(tmp_path, {"method": "reward"})
    with pytest.raises(errors.InvalidArgument, match="--seeds"):
        spec_of(base, seeds=2)


def test_a_message_of_a_plug_in_that_is_not_installed_is_printed():
    session = pb.Session(name="sessions/s1", method="other", env_steps=2**40)
    session.spec.custom.CopyFrom(AnyMessage(type_url="type.googleapis.com/other.Spec", value=b"\x01"))
    shown = json.loads(json.dumps(output.message_dict(session)))
    assert shown["spec"]["custom"]["value"] == {"type": "other.Spec", "base64": "AQ=="}
    assert shown["env_steps"] == 2**40 and session.spec.custom.TypeName() == "other.Spec"
