"""Compiles and runs generated modules in a namespace of allowed builtins. Call it only inside a sandbox.

The restricted namespace gives clear errors for code that leaves the contract. It is not a security boundary: the
sandboxed process is (`dressage.sandbox`).
"""

from __future__ import annotations
import __future__

import ast
import builtins
import math
import traceback
from collections.abc import Callable, Mapping
from types import CodeType
from typing import Any

from dressage.contracts.failures import MAX_LINE, GeneratedCodeError, shorten
from dressage.contracts.syntax import words
from dressage.errors import ReadOnly, UnknownField
from dressage.sandbox.heartbeat import heartbeat
from dressage.sandbox.output import line_number

FILENAME = "<generated>"
"""File name of generated code in tracebacks; identifies its lines."""

ALLOWED_BUILTINS: frozenset[str] = words(
    """
    abs all any bool dict divmod enumerate filter float frozenset int isinstance len list map max min pow range
    reversed round set slice sorted str sum tuple zip True False None
    """
)
CLASS_BUILTINS: frozenset[str] = words("object property staticmethod classmethod super callable")
EXCEPTIONS: frozenset[str] = words(
    "Exception ValueError TypeError KeyError IndexError ZeroDivisionError ArithmeticError AssertionError"
)

_IN_PLACE = "arrays may not be written into; build new ones with np.where"
# Messages of numpy and JAX, whose exceptions have no finer types.
_HINTS: tuple[tuple[str, str, str], ...] = (
    (
        "truth value of an array",
        "array-truth",
        "use np.where(condition, a, b) instead of if, and, or, not on arrays",
    ),
    ("read-only", "in-place", _IN_PLACE),
    ("JAX arrays are immutable", "in-place", _IN_PLACE),
    (
        "could not be broadcast",
        "shape",
        "reduce vectors over their last axis: every term has one value per environment",
    ),
    ("not aligned", "shape", "reduce vectors over their last axis: every term has one value per environment"),
)


def module_globals(allowed: frozenset[str], extra: Mapping[str, Any]) -> dict[str, Any]:
    """Return fresh module globals with the allowed builtins, ``math`` and the ``extra`` names."""
    names = {name: getattr(builtins, name) for name in allowed}
    # The real function: numpy's C code imports parts of itself through the calling frame's builtins on first use.
    # Lint refuses import statements, and names that begin with two underscores, whatever binds them.
    names["__import__"] = builtins.__import__
    names["__build_class__"] = builtins.__build_class__
    return {"__builtins__": names, "__name__": "generated", "math": math, **extra}


def compile_tree(tree: ast.Module) -> CodeType:
    """Compile a linted tree; annotations are not evaluated."""
    flags = __future__.annotations.compiler_flag
    code: CodeType = compile(ast.fix_missing_locations(tree), FILENAME, "exec", flags=flags, dont_inherit=True)
    return code


def line_of(error: BaseException) -> int:
    """Return the innermost line of generated code in the traceback; 0 if there is none."""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == FILENAME]
    return (lines[-1] or 0) if lines else 0


def _hint(error: BaseException, text: str) -> tuple[str, str] | None:
    """Return the rule that an exception breaks and the remedy; None if it has no rule of its own."""
    if isinstance(error, UnknownField):
        return "unknown-field", "use a field of the environment card"
    if isinstance(error, ReadOnly):
        return "in-place", _IN_PLACE
    return next(((rule, remedy) for part, rule, remedy in _HINTS if part in text), None)


def translate_error(error: BaseException, kind: type[GeneratedCodeError], *, action: str) -> GeneratedCodeError:
    """Translate an exception that generated code raised.

    :param action: what failed, such as "calling reward()".
    """
    if isinstance(error, GeneratedCodeError):
        failure = error.failure
        line = failure.line or line_of(error)
        return kind(failure.rule, failure.message, line=line, seen=failure.seen, term=error.term, row=error.row)
    text = f"{type(error).__name__}: {shorten(str(error))}"
    line = line_of(error)
    if isinstance(error, MemoryError):
        message = (
            "the code asked for more memory than it may use; work on the arrays given, without large ones of its own."
        )
        return kind("memory_budget", message, line=line, seen=text)
    if isinstance(error, RecursionError):
        return kind("exception", f"{action} recursed without end; end the recursion.", line=line, seen=text)
    if isinstance(error, PermissionError):
        message = f"{action} tried what the sandbox forbids; use the arguments and np only."
        return kind("sandbox", message, line=line, seen=text)
    if (hint := _hint(error, text)) is not None:
        rule, remedy = hint
        return kind(rule, f"{action} failed; {remedy}.", line=line, seen=text)
    return kind(
        "exception",
        f"{action} raised {type(error).__name__}; make it work for every state.",
        line=line,
        seen=text,
    )


def call(function: Callable[..., Any], *arguments: Any, kind: type[GeneratedCodeError], action: str) -> Any:
    """Call generated code, watched by the sandbox's monitor (`heartbeat`), and translate any exception into a ``kind``.

    :raises GeneratedCodeError: with the rule, the line and the exception.
    """
    try:
        with heartbeat():
            return function(*arguments)
    except Exception as error:
        raise translate_error(error, kind, action=action) from error
    # Not an `Exception`: it would end the process without a report.
    except SystemExit as error:
        raise kind(
            "exception", f"{action} tried to end the process.", line=line_of(error), seen="SystemExit"
        ) from error


def line_of_stack(text: str) -> int:
    """Return the line of generated code in the first of the stacks in a process's output; 0 if there is none.

    The code can print such a line itself, so this is a hint for its author and nothing else.
    """
    return line_number(text, FILENAME, MAX_LINE)
