"""Write the chart's README: an introduction, and the table of values from the comments of values.yaml.

A comment ``# -- words`` above a key documents it, with all below it. Every key is documented or has keys that are.

usage: chart_readme.py [--check]
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]

CHART = Path(__file__).parents[1] / "charts" / "dressage"
_MARK = "<!-- values -->"
_WIDEST_DEFAULT = 120


@dataclass(frozen=True)
class Value:
    """One documented value; ``default`` as YAML reads it."""

    key: str
    default: Any
    words: str


class MissingComment(Exception):
    """Keys of values.yaml without a comment."""


def parse_values(text: str) -> list[Value]:
    """Return the values of a values.yaml in their order.

    :raises MissingComment: naming the keys that have no comment.
    """
    comments = _comments(text)
    values: list[Value] = []
    missing: list[str] = []

    def walk(node: Any, path: tuple[str, ...]) -> None:
        key = ".".join(path)
        if key in comments:
            values.append(Value(key, node, comments[key]))
        elif isinstance(node, dict) and node:
            for name, child in node.items():
                walk(child, (*path, str(name)))
        else:
            missing.append(key)

    walk(yaml.safe_load(text), ())
    if missing:
        raise MissingComment(f"values.yaml: no `# --` comment above {', '.join(missing)}")
    return values


def _comments(text: str) -> dict[str, str]:
    """Return the comments by the dotted key below them."""
    by_key: dict[str, str] = {}
    path: list[tuple[int, str]] = []
    pending = ""
    for line in text.splitlines():
        stripped = line.strip()
        if stripped.startswith("# -- "):
            pending = stripped.removeprefix("# -- ")
            continue
        if not stripped or stripped.startswith(("#", "- ")) or ":" not in stripped:
            continue
        indent = len(line) - len(line.lstrip())
        path = [entry for entry in path if entry[0] < indent]
        path.append((indent, stripped.partition(":")[0].strip('"')))
        if pending:
            by_key[".".join(name for _, name in path)] = pending
            pending = ""
    return by_key


def table(values: list[Value]) -> str:
    """Return the values as a Markdown table."""
    lines = ["| value | default | meaning |", "| --- | --- | --- |"]
    for value in values:
        default = json.dumps(value.default, ensure_ascii=False)
        if len(default) > _WIDEST_DEFAULT:
            default = "see values.yaml"
        lines.append(f"| `{value.key}` | `{_cell(default)}` | {_cell(value.words)} |")
    return "\n".join(lines)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def render(chart: Path = CHART) -> str:
    """Return the text of the README."""
    introduction = (chart / "README.in.md").read_text(encoding="utf-8")
    values = parse_values((chart / "values.yaml").read_text(encoding="utf-8"))
    return introduction.replace(_MARK, table(values))


def main() -> int:
    """Write or check the README; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="check whether the README is current; write nothing")
    arguments = parser.parse_args()
    try:
        readme = render()
    except MissingComment as error:
        print(error, file=sys.stderr)
        return 1
    path = CHART / "README.md"
    if not arguments.check:
        path.write_text(readme, encoding="utf-8")
        return 0
    if path.exists() and path.read_text(encoding="utf-8") == readme:
        return 0
    print(f"{path} is not current: run tools/chart_readme.py", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
