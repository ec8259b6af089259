"""Options become a spec, and errors name the option."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path

import pytest
import typer
from dressage import errors
from dressage.api.v1 import session_pb2
from dressage.cli.options import parse_count
from dressage.sdk.specs import replay_spec
from hypothesis import given
from hypothesis import strategies as st

from tests.fakes.options import spec_of


@pytest.mark.parametrize(("text", "count"), [("600k", 600_000), ("1.5M", 1_500_000), ("2_000", 2000), ("7", 7), (8, 8)])
def test_counts_have_suffixes(text: str, count: int):
    assert parse_count(text) == count


@pytest.mark.parametrize("text", ["4.1M", "2.3m", "1.1k", "16.1k", "0.29G", "1.005k", "8.2e0M"])
def test_a_decimal_fraction_is_the_count_that_is_written(text: str):
    assert parse_count(text) == Fraction(text[:-1]) * {"k": 10**3, "m": 10**6, "g": 10**9}[text[-1].lower()]


@given(st.integers(1, 10**11), st.sampled_from([("k", 3), ("M", 6), ("g", 9)]))
def test_every_count_can_be_written_with_a_suffix(count: int, suffix: tuple[str, int]):
    letter, digits = suffix
    whole, rest = divmod(count, 10**digits)
    assert parse_count(f"{whole}.{rest:0{digits}}{letter}") == count


NO_COUNTS = "-5 0 k 1.5 nan inf 1e30 ten 0.0001k nank snan -infM 1e999999G 1e99999999999999999999 1e-999999 4.1234567M"


@pytest.mark.parametrize("text", ["", *NO_COUNTS.split()])
def test_what_is_no_count_is_refused(text: str):
    with pytest.raises(typer.BadParameter, match="not a whole number from 1"):
        parse_count(text)


@given(st.text(max_size=12))
def test_any_text_is_a_count_or_refused(text: str):
    try:
        assert 0 < parse_count(text) <= 1e11
    except typer.BadParameter:
        return


def configs(*texts: str) -> Sequence[session_pb2.Config]:
    return spec_of(intent="hop", env="Hopper-v5", configs=list(texts)).reward.configs


def test_a_config_sets_only_what_it_names():
    config, plain = configs("fast: learning_rate=1e-3, epochs=4,hidden_sizes=64x32", "plain:")
    assert (config.id, config.hyperparameters.epochs, list(config.hyperparameters.hidden_sizes)) == (
        "fast",
        4,
        [64, 32],
    )
    assert config.hyperparameters.learning_rate == 1e-3
    assert not config.hyperparameters.HasField("discount")
    assert plain.id == "plain"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("learning_rate=1", "ID:name=value"),
        ("a:speed=1", "one of learning_rate"),
        ("a:epochs=four", "epochs.*'four'.*a whole number"),
        ("a:epochs=1.5", "a whole number"),
        ("a:num_envs=99999999999", "a whole number of 32 bits"),
        ("a:epochs=1,epochs=2", "--config a.epochs: .*got '2'.; expected one value"),
        ("a:hidden_sizes=8,hidden_sizes=16", "hidden_sizes.*once"),
        ("a:hidden_sizes=64,64", "NAME=VALUE"),
        ("a:hidden_sizes=x", "64x64"),
        ("a:learning_rate", "NAME=VALUE"),
    ],
)
def test_a_malformed_config_names_what_is_wrong(text: str, message: str):
    with pytest.raises(errors.InvalidArgument, match=message):
        configs(text)


@pytest.mark.parametrize("intent", ["", "  \n", "x" * 100_000])
def test_an_empty_or_overlong_intent_is_refused(intent: str):
    with pytest.raises(errors.InvalidArgument, match="INTENT"):
        spec_of(intent=intent, env="Hopper-v5")


def test_sources_are_read_and_bad_files_named(tmp_path: Path):
    good, binary, big = tmp_path / "r.py", tmp_path / "b.py", tmp_path / "g.py"
    good.write_text("x = 1")
    binary.write_bytes(b"\xff\xfe\x00")
    big.write_bytes(b"#" * 300_000)
    spec = spec_of(intent="hop", env="environments/Hopper-v5", reward=good, judge=good)
    assert (spec.reward.reward_source, spec.judge_source, spec.environment) == (
        "x = 1",
        "x = 1",
        "environments/Hopper-v5",
    )
    for path, message in (
        (binary, "UTF-8"),
        (big, "262144"),
        (tmp_path / "none.py", "No such file"),
        (tmp_path, "directory"),
    ):
        with pytest.raises(errors.InvalidArgument, match=message):
            spec_of(intent="hop", env="Hopper-v5", reward=path)


@pytest.mark.parametrize("text", ["", " \n\t", "\ufeff", "\ufeff\n"])
@pytest.mark.parametrize("option", ["reward", "judge"])
def test_an_empty_source_is_not_taken_as_none(tmp_path: Path, option: str, text: str):
    path = tmp_path / "empty.py"
    path.write_text(text, "utf-8")
    options = {"intent": "hop", "env": "Hopper-v5", option: path}
    with pytest.raises(errors.InvalidArgument, match=f"{option}.*; expected a file that is not empty"):
        spec_of(**options)


def test_a_source_may_begin_with_a_byte_order_mark(tmp_path: Path):
    path = tmp_path / "r.py"
    path.write_bytes(b"\xef\xbb\xbfx = 1")
    assert spec_of(intent="hop", env="Hopper-v5", reward=path).reward.reward_source == "x = 1"


def test_options_that_are_not_given_are_unset():
    spec = spec_of(intent="hop", env="Hopper-v5")
    assert (spec.max_iterations, spec.pass_threshold, spec.model) == (0, 0, "")
    assert spec.WhichOneof("method_spec") == "reward" and not spec.reward.ByteSize()
    assert not spec.HasField("budget")


def recording(
    folder: Path,
    text: str = '{"intent": "crawl", "environment": "environments/HalfCheetah-v5", "reward": {"seeds": 2}}',
) -> Path:
    folder.mkdir()
    (folder / "session.json").write_text(text)
    return folder


def test_options_override_the_spec_of_a_recording(tmp_path: Path):
    base = replay_spec(recording(tmp_path / "crawl"), {})
    spec = spec_of(base, steps=1000)
    assert (spec.intent, spec.environment, spec.model) == ("crawl", "environments/HalfCheetah-v5", "recorded/crawl")
    assert (spec.reward.seeds, spec.reward.max_steps_per_member) == (2, 1000)
    assert spec_of(base, seeds=3).reward.seeds == 3


@pytest.mark.parametrize(("field", "given"), [("intent", "run"), ("env", "Hopper-v5"), ("model", "gpt")])
def test_options_that_a_recording_sets_are_refused(tmp_path: Path, field: str, given: str):
    with pytest.raises(errors.InvalidArgument, match=f"^{field}: .*replay"):
        replay_spec(recording(tmp_path / "crawl"), {field: given})


def test_a_folder_that_is_no_recording_is_refused(tmp_path: Path):
    with pytest.raises(errors.InvalidArgument, match="replay"):
        replay_spec(tmp_path, {})
    with pytest.raises(errors.InvalidArgument, match="replay"):
        replay_spec(recording(tmp_path / "odd", '{"intent": 3, "more": 1}'), {})


def test_an_environment_must_be_named():
    with pytest.raises(errors.InvalidArgument, match="--env"):
        spec_of(intent="run", env="")


def test_a_pool_is_passed_on():
    assert spec_of(intent="run", env="Hopper-v5", pool="gpu").pool == "gpu"


def test_environment_options_set_only_what_they_name():
    texts = ["max_episode_steps=300", "terminate-when-unhealthy = no", "reset_noise_scale=0.05"]
    options = spec_of(intent="hop", env="Hopper-v5", env_options=texts).environment_options
    assert (options.max_episode_steps, options.terminate_when_unhealthy) == (300, False)
    assert options.reset_noise_scale == 0.05
    alone = spec_of(intent="hop", env="Hopper-v5", env_options=["max_episode_steps=300"])
    assert not alone.environment_options.HasField("terminate_when_unhealthy")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("frame_skip=3", "expected one of max_episode_steps, terminate_when_unhealthy, reset_noise_scale"),
        ("max_episode_steps", "got 'max_episode_steps'.; expected NAME=VALUE"),
        ("max_episode_steps=1.5", "a whole number"),
        ("terminate_when_unhealthy=maybe", "true or false"),
        ("reset_noise_scale=big", "a number"),
        ("max_episode_steps=99999999999", "a whole number"),
    ],
)
def test_a_malformed_environment_option_names_what_is_wrong(text: str, message: str):
    with pytest.raises(errors.InvalidArgument, match=message):
        spec_of(intent="hop", env="Hopper-v5", env_options=[text])


@pytest.mark.parametrize("again", ["max_episode_steps=300", "max-episode-steps = 400"])
def test_an_environment_option_is_given_once_only(again: str):
    texts = ["max_episode_steps=300", "reset_noise_scale=0", again]
    with pytest.raises(errors.InvalidArgument, match="--env-option max_episode_steps: given more than once"):
        spec_of(intent="hop", env="Hopper-v5", env_options=texts)


def test_an_environment_option_of_a_recording_may_be_replaced(tmp_path: Path):
    text = '{"intent": "hop", "environment": "environments/Hopper-v5", "environmentOptions": {"maxEpisodeSteps": 50}}'
    base = replay_spec(recording(tmp_path / "hop", text), {})
    spec = spec_of(base, env_options=["max_episode_steps=300"])
    assert spec.environment_options.max_episode_steps == 300
