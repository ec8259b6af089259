"""Checks the words of identifiers and of text against `docs/glossary.md`, section *Words to avoid*.

``python tools/words.py [PATH …]`` prints ``path:line: word; use …`` for each finding and exits with 1 if there is one.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
GLOSSARY = ROOT / "docs" / "glossary.md"
FOLDERS = (
    ".ci",
    "libs",
    "services",
    "tests",
    "tools",
    "benchmarks",
    "research",
    "examples",
    "protos",
    "charts",
    "k8s",
    "docs",
)
SUFFIXES = {".py", ".md", ".proto", ".yaml"}
SKIPPED = (
    "libs/dressage/api/", "docs/api.md", "docs/glossary.md", "charts/dressage/README.md", "examples/recorded/",
    "tests/unit/tools/test_tools_words.py",
)  # fmt: skip
"""Generated or quoted text; the sources of generated text are checked."""
LONGEST_TEST_NAME = 70


@dataclass(frozen=True)
class Rule:
    """A pattern to avoid, and what to write instead."""

    pattern: re.Pattern[str]
    instead: str


@dataclass(frozen=True)
class Finding:
    """A place where a rule is broken."""

    line: int
    word: str
    instead: str


def rules(glossary: str) -> tuple[list[Rule], list[Rule]]:
    """The rules for identifiers and those for prose, from the glossary's table."""
    rows = re.findall(r"^\| (identifier|prose) \| `(.+?)` \| (.+?) \|$", glossary, flags=re.MULTILINE)
    rows = [(where_used, pattern.replace("\\|", "|"), instead) for where_used, pattern, instead in rows]
    names = [
        Rule(re.compile(f"_*(?:{pattern})_*", re.IGNORECASE), use)
        for kind, pattern, use in rows
        if kind == "identifier"
    ]
    texts = [
        Rule(re.compile(rf"\b(?:{pattern})\b", re.IGNORECASE), use) for kind, pattern, use in rows if kind == "prose"
    ]
    return names, texts


def in_text(text: str, first_line: int, prose: Sequence[Rule]) -> Iterator[Finding]:
    """Findings in prose that begins on ``first_line``; quoted code (between back-quotes) is skipped."""
    bare = re.sub(r"`[^`\n]*`", lambda match: " " * len(match.group()), text)
    for rule in prose:
        for match in rule.pattern.finditer(bare):
            yield Finding(first_line + bare.count("\n", 0, match.start()), match.group(), rule.instead)


def _names(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        yield node.name
    elif isinstance(node, ast.arg):
        yield node.arg
    elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        yield node.id
    elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
        yield node.attr


def in_python(source: str, identifiers: Sequence[Rule], prose: Sequence[Rule]) -> Iterator[Finding]:
    """Findings in a module: names, docstrings and strings that contain a space, comments."""
    for node in ast.walk(ast.parse(source)):
        for name in _names(node):
            line = getattr(node, "lineno", 1)
            for rule in identifiers:
                if rule.pattern.fullmatch(name):
                    yield Finding(line, name, rule.instead)
            if name.startswith("test_") and len(name) > LONGEST_TEST_NAME:
                yield Finding(line, name, f"at most {LONGEST_TEST_NAME} characters")
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
            yield from in_text(node.value, node.lineno, prose)
    for number, line in enumerate(source.splitlines(), 1):
        if line.lstrip().startswith("#"):
            yield from in_text(line, number, prose)


def in_file(path: Path, identifiers: Sequence[Rule], prose: Sequence[Rule]) -> Iterator[Finding]:
    """Findings in a file, by its suffix."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".py":
        yield from in_python(text, identifiers, prose)
    elif path.suffix == ".md":
        without_code = re.sub(
            r"^```.*?^```", lambda m: "\n" * m.group().count("\n"), text, flags=re.MULTILINE | re.DOTALL
        )
        yield from in_text(without_code, 1, prose)
    else:
        for number, line in enumerate(text.splitlines(), 1):
            comment = re.search(r"(?://|#)(.*)", line)
            if comment:
                yield from in_text(comment.group(), number, prose)


def files(arguments: Iterable[str]) -> list[Path]:
    """The files below these paths, or those of the repository."""
    roots = [Path(name).resolve() for name in arguments] or [*(ROOT / name for name in FOLDERS), *ROOT.glob("*.md")]
    every = [
        path
        for root in roots
        for path in ([root] if root.is_file() else sorted(root.rglob("*")))
        if "node_modules" not in path.parts
    ]
    return [
        path for path in every if path.suffix in SUFFIXES and not path.relative_to(ROOT).as_posix().startswith(SKIPPED)
    ]


def main(arguments: Sequence[str]) -> int:
    """Print the findings; 1 if there are any."""
    identifiers, prose = rules(GLOSSARY.read_text(encoding="utf-8"))
    count = 0
    for path in files(arguments):
        for finding in sorted(in_file(path, identifiers, prose), key=lambda finding: finding.line):
            print(f"{path.relative_to(ROOT)}:{finding.line}: {finding.word}; use {finding.instead}")
            count += 1
    if count:
        print(f"{count} words to avoid; docs/glossary.md has what to use instead")
    return 1 if count else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
