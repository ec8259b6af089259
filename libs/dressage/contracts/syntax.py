"""Reads the syntax tree of generated sources: their form, their declarations, the lines of their terms."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any, Literal

from dressage.contracts.failures import Violation, shorten
from dressage.parsing import syntax_tree

Style = Literal["vectorised", "per_step"]

MAX_SOURCE_BYTES = 64 * 1024
MAX_TERMS = 32


def words(text: str) -> frozenset[str]:
    """Return the words of a list written as text."""
    return frozenset(text.split())


def parse(source: str, *, owner: str) -> ast.Module | Violation:
    """Parse a generated source.

    :param owner: "reward" or "judge", for the messages.
    :returns: the tree, or the violation if the source cannot be parsed.
    """
    if not isinstance(source, str) or not source.strip():
        return Violation("syntax", 0, f"the {owner} is empty; write the module that the contract describes.")
    if len(source.encode("utf-8", "replace")) > MAX_SOURCE_BYTES:
        return Violation("size", 0, f"the {owner} is larger than {MAX_SOURCE_BYTES // 1024} KiB; shorten it.")
    try:
        return syntax_tree(source)
    except SyntaxError as error:
        return Violation("syntax", error.lineno or 0, f"Python cannot parse this: {shorten(error.msg, 200)}.")
    except (ValueError, RecursionError, MemoryError) as error:
        return Violation(
            "syntax", 0, f"Python cannot parse this: {shorten(str(error), 200) or 'it is nested too deeply'}."
        )


def kind_of(source: str) -> Literal["policy", "feedback", "reward"]:
    """Return what a source defines: a class ``Policy``, a class ``Feedback``, or else a reward."""
    try:
        tree = syntax_tree(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return "reward"
    classes = {node.name for node in tree.body if isinstance(node, ast.ClassDef)}
    if "Policy" in classes:
        return "policy"
    return "feedback" if "Feedback" in classes else "reward"


def reward_style(tree: ast.Module) -> Style | None:
    """Return the form of reward that the module defines; None if there is none."""
    functions = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    if "reward" in functions:
        return "vectorised"
    if functions & {"reward_fn", "_make_reward"} or reward_class(tree) is not None:
        return "per_step"
    return None


def reward_class(tree: ast.Module) -> ast.ClassDef | None:
    """Return the last class at module level that has a ``compute`` method."""
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    for node in reversed(classes):
        if any(isinstance(item, ast.FunctionDef) and item.name == "compute" for item in node.body):
            return node
    return None


def literal(tree: ast.Module, name: str) -> tuple[Any, int] | None:
    """Return (value, line) of a literal that the module assigns to ``name`` at its top level; None: there is none.

    A value that is not a literal comes back as the `ast` expression.
    """
    for node in reversed(tree.body):
        match node:
            case ast.Assign(targets=[ast.Name(id=target)], value=value) if target == name:
                pass
            case ast.AnnAssign(target=ast.Name(id=target), value=ast.expr() as value) if target == name:
                pass
            case _:
                continue
        try:
            return ast.literal_eval(value), node.lineno
        except (ValueError, TypeError, RecursionError):
            return value, node.lineno
    return None


def term_lines(tree: ast.Module) -> dict[str, int]:
    """Return the line that computes each term: the lines of string keys in dicts and subscripts of functions."""
    lines: dict[str, int] = {}
    inner: set[int] = set()  # functions within others, whose lines are read with those
    for function in ast.walk(tree):
        if not isinstance(function, ast.FunctionDef) or id(function) in inner:
            continue
        for node in ast.walk(function):
            match node:
                case ast.FunctionDef():
                    inner.add(id(node))
                case ast.Dict(keys=keys):
                    for key in keys:
                        if isinstance(key, ast.Constant) and isinstance(key.value, str):
                            lines.setdefault(key.value, key.lineno)
                case ast.Subscript(slice=ast.Constant(value=str(name)), ctx=ast.Store()):
                    lines.setdefault(name, node.lineno)
    return lines


def bound_names(tree: ast.Module) -> frozenset[str]:
    """Return every bound name. Scopes are ignored, since a mistake there raises when the code runs."""

    def names() -> Iterator[str]:
        for node in ast.walk(tree):
            match node:
                case ast.Name(id=name, ctx=ast.Store()) | ast.arg(arg=name):
                    yield name
                case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                    yield name
                case ast.ExceptHandler(name=str(name)):
                    yield name
                case ast.Import(names=aliases) | ast.ImportFrom(names=aliases):
                    yield from (alias.asname or alias.name for alias in aliases)

    return frozenset(names())
