"""Finds the programs in a model's reply: Python and DSL text, in fenced blocks or without them.

Python is lowered by `from_python`, DSL text is read with the repairs of `repairs`. Every text that looks like a program becomes
a candidate with its repairs or with the reason for its rejection. Nothing of a reply is executed. Only the first `MAX_REPLY`
characters and `MAX_CANDIDATES` candidates of a reply are read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Literal

from dressage.errors import InvalidArgument
from dressage.programs.from_python import from_python
from dressage.programs.repairs import normalise, read_dsl
from dressage.programs.syntax import MAX_CHARACTERS, Language, Program, parse, to_text

MAX_REPLY = 256 * 1024
"""Characters of a reply that are read."""
MAX_CANDIDATES = 16
"""Candidates of a reply that are read."""
UNENDED = "read a code block without an end, which may be cut off"

Form = Literal["python", "dsl"]
_FENCE = re.compile(r"[ \t]{0,16}(`{3,16}|~{3,16})[ \t]*([\w+-]{0,32})([^`]*)$")
_PYTHON_TAGS = frozenset({"python", "py", "python3"})
_DSL_TAGS = frozenset({"dsl", "karel", "minigrid"})
_DEF_LINE = re.compile(r"[ \t]*DEF\b")
_PYTHON_LINE = re.compile(r"[ \t]*def\b")
_DSL_START = re.compile(r"\bDEF\s{1,8}run\b")


@dataclass(frozen=True)
class Candidate:
    """A program of a reply, or the reason why its text is none.

    :param form: how the reply states it.
    :param line: the line of the reply where its text begins, from 1. Lines in ``problem`` count from there.
    :param program: the program; None if it is rejected.
    :param repairs: what was changed to make it valid, or to make the search able to represent it.
    :param problem: the reason for the rejection; empty if there is a program.
    """

    form: Form
    line: int
    program: Program | None
    repairs: tuple[str, ...] = ()
    problem: str = ""


@dataclass(frozen=True)
class _Text:
    """Part of a reply: its first line, from 1, the tag of its fence (None outside of fences), its lines."""

    line: int
    tag: str | None
    lines: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class _Source:
    """What looks like a program; ``complete`` is false for a block that the reply does not end."""

    form: Form
    line: int
    text: str
    complete: bool = True


def from_reply(reply: str, language: Language) -> tuple[Candidate, ...]:
    """Return the candidates of a reply, in their order: first those of fenced blocks, then those of the text around them.

    Text outside of fenced blocks is searched for a form that no fenced block has. A reply without a candidate gives an empty
    tuple.

    :param reply: any text.
    :param language: the actions and tests of the programs.
    """
    candidates: list[Candidate] = []
    for source in _sources(_texts(reply[:MAX_REPLY])):
        if len(candidates) == MAX_CANDIDATES:
            problem = f"more than {MAX_CANDIDATES} programs in one reply; this one and those after it are not read"
            return (*candidates, Candidate(source.form, source.line, None, problem=problem))
        candidates.append(_candidate(source, language))
    return tuple(candidates)


def _candidate(source: _Source, language: Language) -> Candidate:
    repairs: tuple[str, ...] = ()
    try:
        if source.form == "python":
            program = from_python(source.text, language)
        else:
            program, repairs = read_dsl(source.text[:MAX_CHARACTERS], language)
        program, changes = normalise(program, language)
        program = parse(to_text(program), language)  # repairs may exceed the bounds of strict text
    except InvalidArgument as error:
        return Candidate(source.form, source.line, None, problem=error.violations[0].text)
    notes = () if source.complete else (UNENDED,)
    return Candidate(source.form, source.line, program, tuple(dict.fromkeys((*notes, *repairs, *changes))))


def _texts(reply: str) -> tuple[list[_Text], bool]:
    """Split a reply at its fences.

    :returns: the parts, and whether the last one is a block without an end: it extends to the end of the reply.
    """
    texts = [_Text(1, None)]
    fence = ""
    for number, line in enumerate(reply.split("\n"), start=1):
        bare = line.strip()
        match = _FENCE.match(line) if bare[:3] in ("```", "~~~") else None
        if fence and bare.startswith(fence) and not bare.strip(fence[0]):
            fence = ""
            texts.append(_Text(number + 1, None))
        elif match and not fence:
            fence = match[1]
            texts.append(_Text(number + 1, match[2].lower()))
        else:
            texts[-1].lines.append(line)
    return texts, bool(fence)


def _sources(parts: tuple[list[_Text], bool]) -> Iterator[_Source]:
    """Yield everything that looks like a program."""
    texts, unended = parts
    forms: set[Form] = set()
    for text in texts:
        if text.tag is not None:
            for source in _of_block(text):
                forms.add(source.form)
                yield replace(source, complete=not (unended and text is texts[-1]))
    for text in texts:
        if text.tag is None:
            if "python" not in forms:
                yield from _loose_python(text)
            if "dsl" not in forms:
                yield from _dsl(text.line, "\n".join(text.lines))


def _of_block(block: _Text) -> Iterator[_Source]:
    is_python = block.tag in _PYTHON_TAGS or any(_PYTHON_LINE.match(line) for line in block.lines)
    if is_python:
        yield from _split(block)
        return
    text = "\n".join(block.lines)
    sources = list(_dsl(block.line, text))
    if not sources and block.tag in _DSL_TAGS:
        sources = [_Source("dsl", block.line, text)]
    yield from sources


def _split(block: _Text) -> Iterator[_Source]:
    """Split a Python block that may contain DSL text, too: a line that begins with DEF is not Python.

    DEF in a comment stays there.
    """
    form: Form = "python"
    first, lines = block.line, list[str]()
    for number, line in enumerate(block.lines, start=block.line):
        begins: Form | None = "dsl" if _DEF_LINE.match(line) else None
        if form == "dsl" and _PYTHON_LINE.match(line):
            begins = "python"
        if begins is not None:
            if any(text.strip() for text in lines):
                yield _Source(form, first, "\n".join(lines))
            form, first, lines = begins, number, []
        lines.append(line)
    if any(text.strip() for text in lines):
        yield _Source(form, first, "\n".join(lines))


def _dsl(line: int, text: str) -> Iterator[_Source]:
    """Yield the texts from each ``DEF run`` to the next."""
    starts = [match.start() for match in _DSL_START.finditer(text)]
    for start, end in pairwise([*starts, len(text)]):
        yield _Source("dsl", line + text.count("\n", 0, start), text[start:end])


def _loose_python(text: _Text) -> Iterator[_Source]:
    """Yield functions outside of fences: the line with ``def run`` and the indented or empty lines after it."""
    lines: list[str] = []
    first = indent = 0
    for number, line in enumerate(text.lines, start=text.line):
        own = len(line) - len(line.lstrip())
        if lines and line.strip() and own <= indent:
            yield _Source("python", first, "\n".join(lines))
            lines = []
        if lines:
            lines.append(line)
        elif re.match(r"[ \t]*def[ \t]+run\b", line):
            first, indent, lines = number, own, [line]
    if lines:
        yield _Source("python", first, "\n".join(lines))
