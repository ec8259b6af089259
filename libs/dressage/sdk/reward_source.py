"""The source of a reward that a caller gives as text, as a path, or as a function.

A function or a class is taken with what it uses from its module: `LATEX`, `TERMS` and `MEMORY`, constants, and other functions.
What it uses besides stays out, and the check names it, as it names it in a file.
"""

from __future__ import annotations

import ast
import inspect
import os
import re
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from types import FunctionType
from typing import Any

from dressage.errors import InvalidArgument
from dressage.parsing import syntax_tree
from dressage.sdk.files import read_source

Reward = str | os.PathLike[str] | Callable[..., Any]
"""Source text, a path, a function of the contract (docs/contracts.md), or a class with ``compute``."""

_DECLARATIONS = ("LATEX", "TERMS", "MEMORY")
_INJECTED = ("np", "RewardFunction")
_PER_STEP_PARAMETERS = 4


def reward_source(reward: Reward) -> str:
    """Return the source of a reward.

    :param reward: source text (with a line break), a path, or a function or class.
    :raises InvalidArgument: for a file that cannot be read, or a function without a source.
    """
    if isinstance(reward, str | os.PathLike):
        return source_text(reward, field="reward")
    if isinstance(reward, FunctionType | type):
        return _Extraction(reward).source()
    expected = "source text, a path, a function or a class"
    raise InvalidArgument(field="reward", value=reward, expected=expected)


def source_text(source: str | os.PathLike[str], *, field: str) -> str:
    """Return source text (with a line break) as it is, or that of a path.

    :raises InvalidArgument: for a file that cannot be read, or another type.
    """
    if not isinstance(source, str | os.PathLike):
        raise InvalidArgument(field=field, value=source, expected="source text or a path")
    if isinstance(source, str) and "\n" in source:
        return source
    return read_source(Path(source).expanduser(), field=field)


def reward_name(reward: Reward) -> str:
    """How a session's intent names a reward."""
    if isinstance(reward, FunctionType | type):
        return reward.__name__
    if isinstance(reward, str) and "\n" in reward:
        return "a reward"
    return Path(os.fspath(reward)).name  # type: ignore[arg-type]  # `reward_source` has refused everything else


class _Extraction:
    """The definitions that one object needs, in an order in which they can be executed."""

    def __init__(self, entry: FunctionType | type) -> None:
        self._entry = entry
        self._constants: dict[str, str] = {}
        self._definitions: dict[str, str] = {}
        self._seen: set[str] = set()
        module = sys.modules.get(entry.__module__)
        self._globals = entry.__globals__ if isinstance(entry, FunctionType) else vars(module)

    def source(self) -> str:
        """The source as a module."""
        if isinstance(self._entry, FunctionType):
            for name in _DECLARATIONS:
                self._add(name)
        text = self._follow(self._entry)
        if isinstance(self._entry, FunctionType):
            text = _rename_function(text, self._entry)
        constants = "\n".join(self._constants.values())
        return "\n\n\n".join(filter(None, [constants, *self._definitions.values(), text])) + "\n"

    def _follow(self, function: FunctionType | type) -> str:
        """The text of a definition; what it uses is added before."""
        if isinstance(function, FunctionType) and function.__closure__:
            names = ", ".join(function.__code__.co_freevars)
            message = f"reward: {function.__name__} uses variables of an enclosing function ({names})"
            raise InvalidArgument(f"{message}; make them constants of its module", field="reward")
        try:
            text = textwrap.dedent(inspect.getsource(function)).rstrip()
        except (OSError, TypeError) as error:
            message = f"reward: the source of {function.__name__} cannot be read ({error})"
            raise InvalidArgument(f"{message}; give it as text or as a path", field="reward") from error
        tree = syntax_tree(text)
        if _strip_annotations(tree):
            text = ast.unparse(tree)
        for node in ast.walk(tree):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
                self._add(node.id)
        return text

    def _add(self, name: str) -> None:
        if name in self._seen or name in _INJECTED or name not in self._globals:
            return
        self._seen.add(name)
        value = self._globals[name]
        if value is self._entry:
            return
        if inspect.ismodule(value) and value.__name__ == "math":
            self._constants[name] = "import math" if name == "math" else f"import math as {name}"
        elif isinstance(value, FunctionType):
            self._definitions[name] = self._follow(value)
        elif _is_literal(value):
            self._constants[name] = f"{name} = {value!r}"


def _rename_function(text: str, function: FunctionType) -> str:
    """The definition under the name that the contract has for it."""
    if function.__name__ in ("reward", "reward_fn", "_make_reward"):
        return text
    name = "reward_fn" if function.__code__.co_argcount == _PER_STEP_PARAMETERS else "reward"
    return re.sub(rf"\bdef {re.escape(function.__name__)}\b", f"def {name}", text, count=1)


def _strip_annotations(tree: ast.AST) -> bool:
    """Remove the annotations of functions, whose names do not exist in the sandbox; whether there were any."""
    stripped = False
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and node.returns is not None:
            node.returns, stripped = None, True
        elif isinstance(node, ast.arg) and node.annotation is not None:
            node.annotation, stripped = None, True
    return stripped


def _is_literal(value: Any) -> bool:
    try:
        return bool(ast.literal_eval(repr(value)) == value)
    except (ValueError, SyntaxError, TypeError):
        return False
