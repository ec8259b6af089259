"""Parses replies: fenced code blocks and the sections between headings."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from dressage.parsing import syntax_tree

from dressage_llm_agent.roles.base import ReplyProblem

_FENCE = re.compile(r"^[ \t]*```[ \t]*([\w+-]*)[^\n]*\n(.*?)^[ \t]*```[ \t]*$", re.MULTILINE | re.DOTALL)
_HEADING = re.compile(r"^#{1,4}\s+(.+?)\s*:?\s*$", re.MULTILINE)
_PYTHON = frozenset({"python", "py", "python3", ""})
_SHOWN_LINE = 120


@dataclass(frozen=True)
class Block:
    """A fenced block; ``language`` is the text after the fence, in lower case."""

    language: str
    text: str


def blocks(reply: str) -> list[Block]:
    """Return all fenced blocks, in order."""
    return [Block(match[1].lower(), match[2]) for match in _FENCE.finditer(reply)]


def python_source(reply: str, *, function: str) -> str:
    """Return the source of a reply's only Python block.

    :param function: name of the function that it must define at module level.
    :raises ReplyProblem: without exactly one block, for a syntax error, or without the function.
    """
    source, tree = _python_module(reply)
    if not any(isinstance(node, ast.FunctionDef) and node.name == function for node in tree.body):
        raise ReplyProblem(f"the code does not define {function}() at module level")
    return source


CLASSES = {"policy": ("Policy", ("reset", "act")), "feedback": ("Feedback", ("summarize_trajectory",))}
"""Class and required methods of code that is a class, by subject."""


def class_source(reply: str, *, subject: str) -> str:
    """Return the source of a reply's only Python block, which must define the class of the subject.

    :param subject: ``policy`` or ``feedback``.
    :raises ReplyProblem: without exactly one block, for a syntax error, or without the class and its methods.
    """
    name, methods = CLASSES[subject]
    source, tree = _python_module(reply)
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == name]
    if not classes:
        raise ReplyProblem(f"the code does not define the class {name} at module level")
    if len(classes) > 1:
        raise ReplyProblem(f"the code defines the class {name} {len(classes)} times")
    own = {node.name for node in classes[0].body if isinstance(node, ast.FunctionDef)}
    missing = [method for method in methods if method not in own]
    # Base classes may define methods; the check of the code finds out.
    if missing and not classes[0].bases:
        raise ReplyProblem(*(f"the class {name} does not define {method}()" for method in missing))
    return source


def _python_module(reply: str) -> tuple[str, ast.Module]:
    """The source of a reply's only Python block, and its syntax tree."""
    modules = [block for block in blocks(reply) if block.language in _PYTHON]
    if not modules:
        unclosed = "```" in reply
        why = "a code block was opened and not closed" if unclosed else "there is no Python code block"
        raise ReplyProblem(f"{why}; give the whole module in one block that begins with ```python and ends with ```")
    if len(modules) > 1:
        raise ReplyProblem(f"there are {len(modules)} Python code blocks; give the whole module in exactly one")
    source = modules[0].text.strip("\n") + "\n"
    try:
        tree = syntax_tree(source)
    except SyntaxError as error:
        lines = source.splitlines()
        line = lines[error.lineno - 1].strip()[:_SHOWN_LINE] if error.lineno and error.lineno <= len(lines) else ""
        raise ReplyProblem(f"line {error.lineno} of the code is no Python ({error.msg}): {line}") from None
    except (ValueError, RecursionError, MemoryError) as error:
        raise ReplyProblem(f"the code cannot be parsed: {error}") from None
    return source, tree


def json_object(reply: str) -> dict[str, Any]:
    """Return the only JSON object of a reply, in a fenced block or as the whole reply.

    :raises ReplyProblem: without exactly one object, or for malformed JSON.
    """
    objects = [block.text for block in blocks(reply) if block.language in ("json", "")]
    if len(objects) > 1:
        raise ReplyProblem(f"there are {len(objects)} JSON blocks; give exactly one")
    text = objects[0] if objects else reply
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
    """Return the text below each heading (``## Name``) without fenced blocks, by the heading in lower case."""
    plain = _FENCE.sub("", reply)
    texts: dict[str, str] = {}
    headings = list(_HEADING.finditer(plain))
    for index, heading in enumerate(headings):
        end = headings[index + 1].start() if index + 1 < len(headings) else len(plain)
        texts.setdefault(heading[1].lower(), plain[heading.end() : end].strip())
    return texts


def outside_blocks(reply: str, *, keep: Callable[[Block], bool]) -> str:
    """Return the reply without its fenced blocks, except for the text of those that ``keep`` accepts."""

    def replacement(match: re.Match[str]) -> str:
        block = Block(match[1].lower(), match[2])
        return block.text if keep(block) else ""

    return _FENCE.sub(replacement, reply)


def prose(reply: str) -> str:
    """Return the reply without its fenced blocks."""
    return _FENCE.sub("", reply).strip()


def missing_sections(written: dict[str, str], required: Iterable[str]) -> list[str]:
    """Return a problem for each section that is missing or empty."""
    return [f"the section '## {name}' is missing or empty" for name in required if not written.get(name.lower())]
