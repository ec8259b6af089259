"""`dressage elicit` and the file of criteria, there and back."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from dressage.api.v1 import intent_service_pb2, session_pb2
from dressage.cli import criteria, main
from dressage.errors import InvalidArgument
from dressage.sdk.files import read_criteria

from tests.fakes.options import spec_of


def answer() -> intent_service_pb2.ElicitResponse:
    entries = [
        session_pb2.IntentCriterion(title="fast: really", description="≥ 4 m/s", category="gait", default_on=True),
        session_pb2.IntentCriterion(title="quiet", description="< 1 N", category="efficiency", default_on=False),
    ]
    return intent_service_pb2.ElicitResponse(criteria=entries, questions=["how far?"])


@pytest.mark.parametrize("name", ["c.json", "c.yaml", "c.yml"])
def test_written_criteria_are_read_back_except_those_that_are_off(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    criteria.write_criteria(path, criteria.to_document("run", "Hopper-v5", answer()))
    assert list(read_criteria(path)) == [answer().criteria[0]]
    spec = spec_of(intent="run", env="Hopper-v5", criteria=path)
    assert [entry.title for entry in spec.criteria] == ["fast: really"]
    path.write_text(path.read_text().replace("false", "true"))
    assert len(read_criteria(path)) == 2


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "JSON or YAML"),
        ("[]", "1 to 32 criteria"),
        ('[{"name": "x"}]', "criteria[0]"),
        ('{"criteria": [{"description": "x"}]}', "criteria[0]"),
        ('{"criteria": [{"title": "x", "on": "yes"}]}', "criteria[0].on"),
        ('{"criteria": [{"title": "x", "on": false}]}', "no criterion is on"),
        (json.dumps({"criteria": [{"title": "x" * 201}]}), "at most 200 characters"),
    ],
)
def test_an_invalid_file_names_the_problem(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "c.json"
    path.write_text(text)
    with pytest.raises(InvalidArgument) as caught:
        read_criteria(path)
    assert message in caught.value.message
    (tmp_path / "c.yaml").write_text("a: [")
    with pytest.raises(InvalidArgument, match="YAML"):
        read_criteria(tmp_path / "c.yaml")


def test_elicit_end_to_end_on_a_stack_of_its_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "criteria.yaml"
    arguments = [
        "elicit",
        "run forward fast",
        "--env",
        "HalfCheetah-v5",
        "--out",
        str(out),
        "--data-dir",
        str(tmp_path / "d"),
    ]
    assert main.invoke(arguments) == 0
    text = capsys.readouterr().out
    assert "m/s" in text and f"--criteria {out}" in text
    assert read_criteria(out)


def test_a_refused_model_is_named_as_the_option_of_this_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status = main.invoke(["elicit", "hop", "--env", "Hopper-v5", "--model", "foo/bar", "--data-dir", str(tmp_path)])
    assert status and capsys.readouterr().err.startswith("error: --model: 'foo/bar' cannot be used")
