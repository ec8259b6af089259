"""Reads replies: fenced code blocks and the sections between headings."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from dressage_llm_agent.roles.base import ReplyProblem

_FENCE = re.compile(r"^[ \t]*```[ \t]*([\w+-]*)[^\n]*\n(.*?)^[ \t]*```[ \t]*$", re.MULTILINE | re.DOTALL)
_HEADING = re.compile(r"^#{1,4}\s+(.+?)\s*:?\s*$", re.MULTILINE)
_PYTHON = frozenset({"python", "py", "python3", ""})
_SHOWN_LINE = 120


@dataclass(frozen=True)
class Block:
    """A fenced block; ``language`` as written after the fence, in lower case."""

    language: str
    text: str


def blocks(reply: str) -> list[Block]:
    """All fenced blocks, in order."""
    return [Block(match[1].lower(), match[2]) for match in _FENCE.finditer(reply)]


def python_source(reply: str, *, function: str) -> str:
    """The one Python block of a reply.

    :param function: name of the function that it must define at module level.
    :raises ReplyProblem: where there is none or several, or it does not parse, or lacks the function.
    """
    found = [block for block in blocks(reply) if block.language in _PYTHON]
    if not found:
        unclosed = "```" in reply
        why = "a code block was opened and not closed" if unclosed else "there is no Python code block"
        raise ReplyProblem(f"{why}; give the whole module in one block that begins with ```python and ends with ```")
    if len(found) > 1:
        raise ReplyProblem(f"there are {len(found)} Python code blocks; give the whole module in exactly one")
    source = found[0].text.strip("\n") + "\n"
    try:
        tree = ast.parse(source)
    except SyntaxError as error:
        lines = source.splitlines()
        line = lines[error.lineno - 1].strip()[:_SHOWN_LINE] if error.lineno and error.lineno <= len(lines) else ""
        raise ReplyProblem(f"line {error.lineno} of the code is no Python ({error.msg}): {line}") from None
    except (ValueError, RecursionError, MemoryError) as error:
        raise ReplyProblem(f"the code cannot be parsed: {error}") from None
    if not any(isinstance(node, ast.FunctionDef) and node.name == function for node in tree.body):
        raise ReplyProblem(f"the code does not define {function}() at module level")
    return source


def json_object(reply: str) -> dict[str, Any]:
    """The one JSON object of a reply, in a fenced block or as the whole reply.

    :raises ReplyProblem: where there is none or several, or it is malformed.
    """
    found = [block.text for block in blocks(reply) if block.language in ("json", "")]
    if len(found) > 1:
        raise ReplyProblem(f"there are {len(found)} JSON blocks; give exactly one")
    text = found[0] if found else reply
    try:
        value = json.loads(text)
    except ValueError as error:
        raise ReplyProblem(
            f"there is no readable JSON object ({error}); give one in a block that begins with ```json"
        ) from None
    if not isinstance(value, dict):
        raise ReplyProblem(f"the JSON is a {type(value).__name__}, not an object")
    return value


def sections(reply: str) -> dict[str, str]:
    """Text below each heading (``## Name``), by the heading in lower case; fenced blocks left out."""
    plain = _FENCE.sub("", reply)
    found: dict[str, str] = {}
    headings = list(_HEADING.finditer(plain))
    for index, heading in enumerate(headings):
        end = headings[index + 1].start() if index + 1 < len(headings) else len(plain)
        found.setdefault(heading[1].lower(), plain[heading.end() : end].strip())
    return found


def prose(reply: str) -> str:
    """The reply without its fenced blocks."""
    return _FENCE.sub("", reply).strip()


def missing_sections(found: dict[str, str], wanted: Iterable[str]) -> list[str]:
    """A problem for each section that is missing or empty."""
    return [f"the section '## {name}' is missing or empty" for name in wanted if not found.get(name.lower())]
