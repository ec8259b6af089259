"""Loads and runs code policies and feedback classes. Call it only inside a sandbox: it runs generated code.

The contract of a policy::

    class Policy:
        def reset(self): ...
        def act(self, obs): ...

An instance serves one episode: it is constructed without arguments, ``reset()`` is called, then ``act(obs)`` once a step.
``obs`` is a copy of the flat observation, (D,) float64, or an int where observations are discrete.
"""

from __future__ import annotations

import builtins
import random
import sys
import types
from typing import Any

from numpy import random as numpy_random

from dressage.contracts import execute
from dressage.contracts.failures import PolicyError, Violation, shorten
from dressage.contracts.policy_lint import ALLOWED_MODULES, POLICY_BUILTINS
from dressage.contracts.syntax import parse

MAX_FEEDBACK = 500
"""Characters of one summary; longer ones are cut."""
_MODULE = "generated"

# Modules that numpy's C code imports through the importing frame on first use.
_NUMPY_INTERNALS = frozenset({"warnings", "contextlib", "types", "datetime"})


class ForbiddenImport(ImportError):
    """A policy imported a module that is not on the list."""


def guarded_import(name: str, scope: Any = None, local: Any = None, names: Any = (), level: int = 0) -> Any:
    """Import a module of the allow-list.

    :raises ForbiddenImport: for another one.
    """
    if level or name.partition(".")[0] not in ALLOWED_MODULES | _NUMPY_INTERNALS:
        raise ForbiddenImport(f"importing {name} is not allowed")
    return builtins.__import__(name, scope, local, names, level)


def load_class(source: str, name: str, *, owner: str, seed: int = 0) -> type:
    """Run a linted module and return one of its classes.

    :param name: "Policy" or "Feedback".
    :param owner: "policy" or "feedback", for messages.
    :param seed: seed of the global random streams of the module ``random`` and of numpy.
    :raises PolicyError: the module cannot be parsed or raises, or has no such class.
    """
    tree = parse(source, owner=owner)
    if isinstance(tree, Violation):
        raise PolicyError(tree.rule, tree.message, line=tree.line)
    module = types.ModuleType(_MODULE)
    allowed = {entry: getattr(builtins, entry) for entry in POLICY_BUILTINS}
    # Output has no reader, and a flood of it would cost the trusted side.
    allowed |= {"__import__": guarded_import, "__build_class__": builtins.__build_class__, "print": _print}
    vars(module)["__builtins__"] = allowed
    sys.modules[_MODULE] = module  # dataclasses and enum look their module up
    random.seed(seed)
    numpy_random.seed(seed % 2**32)
    invoke(exec, execute.compile_tree(tree), vars(module), action=f"loading the {owner}")
    entry = vars(module).get(name)
    if not isinstance(entry, type):
        raise PolicyError(f"no-{owner}", f"the module defines no class {name} at its top level; define it.")
    return entry


def _print(*_: Any, **__: Any) -> None:
    """Print nothing."""


def invoke(function: Any, *arguments: Any, action: str) -> Any:
    """Call generated code.

    :raises PolicyError: for whatever it raises.
    """
    try:
        return function(*arguments)
    except BaseException as error:
        raise translate(error, action=action) from error


def translate(error: BaseException, *, action: str) -> PolicyError:
    """Return the error of an exception that a policy raised.

    :param action: what failed, such as "act()".
    """
    if isinstance(error, PolicyError):
        return error
    line = execute.line_of(error)
    try:
        seen = f"{type(error).__name__}: {shorten(str(error))}"
    except BaseException:  # the exception is the policy's own, and so is its text
        seen = "an exception without text"
    if isinstance(error, MemoryError):
        return PolicyError(
            "memory_budget", f"{action} asked for more memory than a policy has; use less.", line=line, seen=seen
        )
    if isinstance(error, (PermissionError, ForbiddenImport)):
        message = f"{action} tried what the sandbox forbids; use obs, the allowed modules and nothing else."
        return PolicyError("sandbox", message, line=line, seen=seen)
    if isinstance(error, RecursionError):
        return PolicyError("exception", f"{action} recursed without end; end the recursion.", line=line, seen=seen)
    if isinstance(error, SystemExit | KeyboardInterrupt | GeneratorExit):
        return PolicyError("exception", f"{action} tried to end the process; return instead.", line=line, seen=seen)
    message = f"{action} raised {shorten(type(error).__name__, 80)}; make it work for every observation."
    return PolicyError("exception", message, line=line, seen=seen)


def new_episode(policy: type) -> Any:
    """Return ``act`` of a new instance, after its ``reset()``.

    :raises PolicyError: for whatever the constructor or ``reset()`` raises.
    """
    instance = invoke(policy, action="Policy()")
    act = invoke(getattr, instance, "act", action="Policy.act")
    invoke(lambda: instance.reset(), action="reset()")
    return act


def summarize(feedback: type, observations: Any) -> str:
    """Return the text of a new feedback object for one episode, at most `MAX_FEEDBACK` characters.

    :param observations: list of T+1 observations, as a policy gets them.
    :raises PolicyError: it raises, or returns no text.
    """
    instance = invoke(feedback, action="Feedback()")
    text = invoke(lambda: instance.summarize_trajectory(observations), action="summarize_trajectory()")
    if not isinstance(text, str) or not text.strip():
        message = "summarize_trajectory() must return a short text."
        raise PolicyError("return-type", message, seen=shorten(type(text).__name__, 80))
    return shorten(str.__str__(text), MAX_FEEDBACK)
