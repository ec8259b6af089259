"""Parsing Python in threads.

CPython counts the depth of a syntax tree for all threads together. If the interpreter switches threads while it builds one,
both calls end in `SystemError: AST constructor recursion depth mismatch` (python/cpython#106905, mended in 3.11.8 and 3.12.2).
Judgments and checks run in threads, numpy parses the header of each array, and `inspect.signature` those of functions in C, as
large packages do while they are imported. Because not all of them can hold the lock, a disturbed tree is built again.
"""

from __future__ import annotations

import ast
import threading

ONE_PARSER = threading.RLock()
"""Held while a syntax tree is built, also by code of others that builds one."""

_ATTEMPTS = 20


def syntax_tree(source: str) -> ast.Module:
    """Return the syntax tree of a module.

    :raises SyntaxError: if it is no Python.
    :raises ValueError: if it has null bytes.
    :raises RecursionError: if it is nested too deeply.
    """
    with ONE_PARSER:
        for _ in range(_ATTEMPTS - 1):
            try:
                return ast.parse(source)
            except SystemError:
                continue
        return ast.parse(source)
