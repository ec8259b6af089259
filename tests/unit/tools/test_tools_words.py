"""The check of words: findings in names, prose and comments, and the exceptions."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
_spec = importlib.util.spec_from_file_location("words", ROOT / "tools" / "words.py")
words = sys.modules["words"] = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(words)

IDENTIFIERS, PROSE = words.rules((ROOT / "docs" / "glossary.md").read_text("utf-8"))


def findings(path: Path) -> list[tuple[int, str]]:
    return [(finding.line, finding.word) for finding in words.in_file(path, IDENTIFIERS, PROSE)]


def written(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text, "utf-8")
    return path


def test_the_glossary_has_rules_of_both_kinds() -> None:
    assert len(IDENTIFIERS) >= 5 and len(PROSE) >= 10
    assert all(rule.instead for rule in (*IDENTIFIERS, *PROSE))


@pytest.mark.parametrize(
    "source",
    [
        "told = 1",
        "_told = 1",
        "def found() -> None: ...",
        "def f(asked: int) -> None: ...",
        "class Where: ...",
        "for wanted in (): ...",
        "thing.made = 1",
    ],
)
def test_a_bad_identifier_is_reported(source: str, tmp_path: Path) -> None:
    ((line, _),) = findings(written(tmp_path, "a.py", f'"""Module."""\n\n{source}\n'))
    assert line == 3


def test_only_whole_names_that_are_bound_are_identifiers(tmp_path: Path) -> None:
    source = "untold = 1\nfoundation = 2\nprint(result.found)\n"
    assert findings(written(tmp_path, "a.py", source)) == []


def test_a_bad_sentence_is_reported_with_its_line(tmp_path: Path) -> None:
    source = (
        '"""Module.\n\nThe trainer tells the server.\n"""\n\nTEXT = "nobody is there"\nKEY = "told"\n# what it knows\n'
    )
    assert findings(written(tmp_path, "a.py", source)) == [(3, "tells"), (6, "nobody"), (8, "knows")]


def test_every_suffix_is_read_as_its_own_kind(tmp_path: Path) -> None:
    assert findings(written(tmp_path, "a.md", "One.\n\nIt tells all.\n")) == [(3, "tells")]
    assert findings(written(tmp_path, "a.proto", "// It tells all.\nstring told = 1;\n")) == [(1, "tells")]
    assert findings(written(tmp_path, "a.yaml", "tells: yes  # it says so\n")) == [(1, "says")]


def test_code_between_back_quotes_is_exempt(tmp_path: Path) -> None:
    assert findings(written(tmp_path, "a.md", "Use `tells` here.\n\n```\nit tells all\n```\n\nIt says so.\n")) == [
        (7, "says")
    ]
    assert findings(written(tmp_path, "a.py", '"""Read `nobody` from the table."""\n')) == []


def test_long_test_names_are_reported(tmp_path: Path) -> None:
    longest, longer = "test_" + "a" * 65, "test_" + "a" * 66
    source = f"def {longest}() -> None: ...\n\n\ndef {longer}() -> None: ...\n"
    assert findings(written(tmp_path, "test_a.py", source)) == [(4, longer)]


def test_findings_are_printed_and_make_the_exit_status(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(words, "ROOT", tmp_path)
    written(tmp_path, "good.md", "It prints the path.\n")
    assert words.main([str(tmp_path)]) == 0
    written(tmp_path, "bad.md", "It tells the path.\n")
    assert words.main([str(tmp_path)]) == 1
    printed = capsys.readouterr().out
    assert printed.startswith("bad.md:1: tells; use ") and "1 words to avoid" in printed


def test_generated_files_are_skipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(words, "ROOT", tmp_path)
    for name in ("libs/dressage/api/a.py", "libs/dressage/cli/a.py"):
        (tmp_path / name).parent.mkdir(parents=True)
        written(tmp_path, name, "told = 1\n")
    assert [path.relative_to(tmp_path).as_posix() for path in words.files([str(tmp_path)])] == [
        "libs/dressage/cli/a.py"
    ]
