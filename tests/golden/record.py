"""Golden files: outputs that a change of the code's structure must not change, recorded from the code that is here.

``equal/`` must stay equal: weights of short trainings, presets, cards, the built-in author's rewards and judges, steps of small
environments, specs and exit codes of accepted and refused command lines. ``read/`` is for reading: help, messages of
errors, JSON and its schema, and the API's descriptor; `git diff` shows what a change does to them.

    python -m tests.golden.record                 # rewrites all files
    python -m tests.golden.record trainings help  # rewrites those of some recorders

A difference in ``equal/`` is a fault unless the change is meant. One in ``read/`` is read, and then recorded.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent
Files = dict[str, str]
"""Contents by path below this folder."""


def lines(document: dict[str, Any]) -> str:
    """Return a document as JSON with a line for each entry, so that a diff names what differs."""
    entries = (f"{json.dumps(name)}: {compact(value)}" for name, value in document.items())
    return "{\n" + ",\n".join(entries) + "\n}\n"


def compact(value: Any) -> str:
    """Return data as JSON in one line, with sorted keys."""
    return json.dumps(value, sort_keys=True, ensure_ascii=False)


def digest(value: Any) -> str:
    """Return a short digest of a text, or of other data as JSON."""
    text = value if isinstance(value, str) else compact(value)
    return f"{hashlib.sha256(text.encode()).hexdigest()[:16]} {len(text)}"


def recorders() -> dict[str, Callable[[], Files]]:
    """Return what records each group of files, by name; imported on use, since some load JAX and others start servers."""
    from tests.golden import commands, environments, texts, trainings

    return {
        "trainings": trainings.record,
        "environments": environments.record,
        "episodes": environments.record_episodes,
        "authors": environments.record_author,
        "commands": commands.record,
        "help": texts.record_help,
        "json": texts.record_json,
        "descriptor": texts.record_descriptor,
    }


NAMES = ("trainings", "environments", "episodes", "authors", "commands", "help", "json", "descriptor")


def main(names: list[str]) -> None:
    for name in names or NAMES:
        for path, content in recorders()[name]().items():
            file = FOLDER / path
            file.parent.mkdir(exist_ok=True)
            before = file.read_text("utf-8") if file.exists() else ""
            if before != content:
                file.write_text(content, "utf-8")
            print(f"{'unchanged' if before == content else 'written'}: {file.relative_to(FOLDER)}")


if __name__ == "__main__":
    # A second interpreter in the environment of the test, so that both record the same.
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    main(sys.argv[1:])
