"""Every command line of the documents names commands and options that exist."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer
from dressage.api.arguments import SESSION
from dressage.cli.main import app

ROOT = Path(__file__).parents[3]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
COMMANDS = typer.main.get_command(app)


def command_lines(text: str) -> Iterator[str]:
    """Return the command lines of `dressage` in blocks of code and between back-quotes."""
    for block in re.findall(r"^```\w*\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
        for line in block.replace("\\\n", " ").splitlines():
            if line.startswith("dressage "):
                yield line
    prose = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    yield from re.findall(r"`(dressage [^`\n]+)`", prose)


def problem(line: str) -> str | None:
    """Return what is wrong with a command line: an unknown command or option."""
    words = shlex.split(line.replace("…", ""), comments=True)[1:]
    if words[:1] == ["COMMAND"]:
        return None
    command = COMMANDS
    while hasattr(command, "commands"):
        if not words or words[0].startswith("-"):
            return None
        if words[0] not in command.commands:
            return f"{line}: no command {words[0]!r}"
        command = command.commands[words.pop(0)]
        if "|" in (words or [""])[0]:
            return None
    known = {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)} | {"--help"}
    options = {word.split("=")[0] for word in words if re.match(r"--?[a-z]", word)}
    unknown = sorted(option for option in options if option not in known and not option.endswith("-"))
    return f"{line}: no option {unknown[0]}" if unknown else None


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_documented_commands_and_options_exist(page: Path) -> None:
    assert [text for line in command_lines(page.read_text("utf-8")) if (text := problem(line))] == []


def test_the_option_table_of_run_has_only_its_options() -> None:
    text = (ROOT / "docs" / "guide.md").read_text("utf-8").partition("\n## Run a session\n")[2].partition("\n## ")[0]
    cells = [line.split("|")[1] for line in text.splitlines() if line.startswith("| `--")]
    options = {option for cell in cells for option in re.findall(r"--[a-z-]+", cell)}
    assert len(options) > 15
    assert [option for option in sorted(options) if problem(f"dressage run x {option}")] == []


@pytest.mark.parametrize("line", ["dressage runn x", "dressage sessions lost", "dressage run x --envv Hopper-v5"])
def test_unknown_commands_and_options_are_recognised(line: str) -> None:
    assert problem(line)


def test_the_guide_explains_every_option_of_a_session():
    guide = (ROOT / "docs" / "guide.md").read_text("utf-8")
    assert not [each.flag for each in SESSION if each.flag.startswith("--") and each.flag not in guide]
