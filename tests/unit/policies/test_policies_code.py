"""Bundles of code policies: what is saved is what is loaded, and damage is named."""

from __future__ import annotations

import json

import pytest
from dressage.errors import InvalidArgument, NotFound
from dressage.policies import CodePolicy, code_from_bytes, is_code, is_code_bytes, load, load_code
from hypothesis import given
from hypothesis import strategies as st

SOURCE = "class Policy:\n    def reset(self): pass\n    def act(self, obs): return 1  # ü\n"


def discrete(source=SOURCE, **fields) -> CodePolicy:
    given = {"environment": "CartPole-v1", "observation_size": 4, "num_actions": 2, **fields}
    return CodePolicy(source=source, **given)


names = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=40)


@given(names, names, st.dictionaries(names, names, max_size=3))
def test_any_source_and_provenance_come_back(source, environment, provenance):
    policy = discrete(source, environment=environment, provenance=provenance)
    assert code_from_bytes(policy.to_bytes()) == policy and is_code_bytes(policy.to_bytes())


@pytest.mark.parametrize("name", ["bundle", "bundle.zip"])
def test_folders_and_files_come_back_without_running(name, tmp_path):
    box = CodePolicy("raise SystemExit", "Hopper-v5", observation_size=11, action_low=(-1.0,), action_high=(1.0,))
    for policy in (discrete(), box, discrete(observation_size=0, observation_count=16)):
        saved = policy.save(tmp_path / name)
        assert load_code(saved) == policy and is_code(saved)
    if saved.is_dir():
        assert (saved / "policy.py").read_text() == SOURCE and is_code(saved / "card.json")


def test_a_bundle_of_weights_is_no_code_and_the_reverse(tmp_path):
    folder = discrete().save(tmp_path / "code")
    with pytest.raises(NotFound, match=r"policy\.safetensors"):
        load(folder)
    with pytest.raises(NotFound, match=r"card\.json is missing"):
        load_code(tmp_path)
    assert not is_code(tmp_path) and not is_code_bytes(b"nothing")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (dict(kind="mlp"), "card.json format, kind"),
        (dict(sha256="0"), "card.json sha256"),
        (dict(action={"kind": "box", "low": [1.0], "high": [0.0]}), "action.low, action.high"),
        (dict(action=3), "malformed"),
        (dict(observation_size=0), "observation_size"),
        (dict(environment={"id": ""}), "environment"),
    ],
)
def test_a_damaged_card_is_named(change, message, tmp_path):
    folder = discrete().save(tmp_path / "bundle")
    card = json.loads((folder / "card.json").read_text()) | change
    (folder / "card.json").write_text(json.dumps(card))
    with pytest.raises(InvalidArgument, match=message.replace(".", r"\.")):
        load_code(folder)
    (folder / "card.json").write_text("{")
    with pytest.raises(InvalidArgument, match="damaged"):
        load_code(folder)


def test_a_changed_source_is_refused(tmp_path):
    folder = discrete().save(tmp_path / "bundle")
    (folder / "policy.py").write_text(SOURCE.replace("1", "0"))
    with pytest.raises(InvalidArgument, match="sha256"):
        load_code(folder)
    with pytest.raises(InvalidArgument, match="not a code policy"):
        code_from_bytes(b"PK nothing")
