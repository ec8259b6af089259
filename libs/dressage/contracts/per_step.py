"""Adapter for rewards that are written for one environment and one step, as those of Prompt2Policy are.

There are three forms: a class with ``compute(self, obs, action, next_obs, info)``, a ``_make_reward()`` that returns a closure,
and a bare ``reward_fn``. Each environment has its own instance, created when its episode starts, so state on ``self``,
in the closure or in the module's globals belongs to one episode.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import CodeType, FunctionType
from typing import Any

import numpy as np

from dressage.contracts import execute, namespace
from dressage.contracts.failures import RewardError
from dressage.contracts.syntax import MAX_TERMS, literal, reward_class
from dressage.envs.cards import EnvironmentCard
from dressage.envs.catalogue import catalogue
from dressage.envs.state import State

_NAMES = execute.ALLOWED_BUILTINS | execute.CLASS_BUILTINS | execute.EXCEPTIONS | {"print"}
_SUM_TOLERANCE = 1e-6


class RewardFunction:
    """Optional base class of per-step rewards; does nothing."""

    latex: str = ""
    terms: Mapping[str, str] = {}


@dataclass
class StepReward:
    """One instance: the reward of one environment for one episode."""

    function: Callable[..., Any]
    holder: Any
    """Where its state is kept: an instance, a closure, or the module's globals."""

    def __call__(self, obs: Any, action: Any, next_obs: Any, info: dict[str, Any]) -> tuple[float, dict[str, float]]:
        """Return (total, terms) of one step.

        :raises RewardError: the reward raised, or returned anything else.
        """
        result = execute.call(self.function, obs, action, next_obs, info, kind=RewardError, action="the reward")
        if not (isinstance(result, tuple) and len(result) == 2 and isinstance(result[1], dict)):
            message = "the reward must return (total, {term: value})."
            raise RewardError("return-type", message, seen=type(result).__name__)
        try:
            total, terms = float(result[0]), {str(name): float(value) for name, value in result[1].items()}
        except (TypeError, ValueError) as error:
            raise RewardError("return-type", "total and terms must be plain numbers.", seen=str(error)) from error
        except OverflowError as error:
            raise execute.translate_error(error, RewardError, action="the reward") from error
        return total, terms

    def state(self) -> dict[str, Any]:
        """Return its state as names and plain values."""
        return {name: value for name, value in _items(self.holder) if not callable(value)}

    def restore(self, values: Mapping[str, Any]) -> None:
        """Restore the values that `state` returned."""
        if isinstance(self.holder, FunctionType):
            for name, cell in zip(self.holder.__code__.co_freevars, self.holder.__closure__ or (), strict=True):
                if name in values:
                    cell.cell_contents = values[name]
        elif isinstance(self.holder, dict):
            self.holder.update(values)
        else:
            vars(self.holder).update(values)


def _items(holder: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(holder, FunctionType):
        for name, cell in zip(holder.__code__.co_freevars, holder.__closure__ or (), strict=True):
            yield name, cell.cell_contents
    elif isinstance(holder, dict):
        injected = {"np", "math", "RewardFunction"}
        yield from ((k, v) for k, v in holder.items() if not k.startswith("__") and k not in injected)
    else:
        yield from vars(holder).items()


@dataclass(frozen=True)
class PerStepFactory:
    """Creates instances of a per-step reward; each call returns a new one."""

    code: CodeType
    entry: str
    """Name of the class, of ``_make_reward`` or of ``reward_fn``."""

    def module(self) -> dict[str, Any]:
        """Run the module and return its globals."""
        scope = execute.module_globals(
            _NAMES, {"np": namespace.array_namespace("numpy", wide=True), "RewardFunction": RewardFunction}
        )
        execute.call(exec, self.code, scope, kind=RewardError, action="loading the reward")  # inside a sandbox only
        return scope

    def __call__(self) -> StepReward:
        """Return a new instance."""
        scope = self.module()
        entry = scope[self.entry]
        if self.entry == "reward_fn":
            return StepReward(entry, scope)
        instance = execute.call(entry, kind=RewardError, action=f"calling {self.entry}()")
        if isinstance(entry, type):
            return StepReward(instance.compute, instance)
        if not isinstance(instance, FunctionType):
            raise RewardError("return-type", "_make_reward() must return a function.", seen=type(instance).__name__)
        return StepReward(instance, instance)


def make_factory(tree: ast.Module) -> PerStepFactory:
    """Compile a linted per-step module."""
    names = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    definition = reward_class(tree)
    entry = definition.name if definition is not None else "_make_reward" if "_make_reward" in names else "reward_fn"
    # The scope provides np and RewardFunction; the packages that their imports name do not exist here.
    tree.body = [node for node in tree.body if not _is_injected_import(node)]
    return PerStepFactory(execute.compile_tree(tree), entry)


def _is_injected_import(node: ast.stmt) -> bool:
    if isinstance(node, ast.ImportFrom):
        return True
    return isinstance(node, ast.Import) and any(alias.name == "numpy" for alias in node.names)


def describe(factory: PerStepFactory, tree: ast.Module, card: EnvironmentCard) -> tuple[str, dict[str, str]]:
    """Return (latex, terms) from the declarations of the module, else from one call on a zero state.

    :raises RewardError: the reward cannot be created or called, or its declarations are malformed.
    """
    row = factory()
    latex, terms = getattr(row.holder, "latex", ""), getattr(row.holder, "terms", {})
    if isinstance(row.holder, (FunctionType, dict)):
        latex, terms = _from_docstring(tree, factory.entry)
        declared = literal(tree, "TERMS")
        terms = declared[0] if declared is not None else terms
    if not isinstance(latex, str) or not isinstance(terms, Mapping):
        raise RewardError("terms", "latex must be a string and terms a dict of descriptions.", seen=repr(terms))
    terms = {str(name): str(meaning) for name, meaning in terms.items()}
    if not terms:
        zero = State({field.name: np.zeros((1, *field.shape)) for field in card.fields})
        info = next(infos(card, zero, np.zeros((1, *card.action_shape)), zero, np.ones(1, bool)))
        _, values = row(zero.observation[0], np.zeros(card.action_shape), zero.observation[0], info)
        terms = dict.fromkeys(values, "")
    if not 1 <= len(terms) <= MAX_TERMS:
        raise RewardError("terms", f"a reward has 1 to {MAX_TERMS} terms.", seen=str(len(terms)))
    return latex, terms


def _from_docstring(tree: ast.Module, entry: str) -> tuple[str, dict[str, str]]:
    """Read ``LaTeX:`` and ``Terms:`` of a docstring; terms are lines "name: meaning" (a dash before is fine)."""
    functions = [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef) and n.name in (entry, "reward_fn")]
    text = "\n".join(filter(None, (ast.get_docstring(node) for node in functions)))
    latex = re.search(r"^LaTeX:[ \t]*(.*)$", text, re.MULTILINE | re.IGNORECASE)
    block = re.search(r"^Terms:[ \t]*\n((?:[ \t]+.*\n?|[ \t]*[-*].*\n?)+)", text, re.MULTILINE | re.IGNORECASE)
    lines = block.group(1).splitlines() if block else []
    pairs = (re.match(r"\s*[-*]?\s*`?(\w+)`?\s*[:=]\s*(.*)", line) for line in lines)
    return (latex.group(1).strip() if latex else ""), {m.group(1): m.group(2).strip() for m in pairs if m}


def infos(
    card: EnvironmentCard, state: State, action: Any, next_state: State, starting: Any
) -> Iterator[dict[str, Any]]:
    """Yield the ``info`` of each row: the fields after the step, and Gymnasium's keys where they can be computed.

    ``x_velocity`` (and y) is the mean over the step, as in Gymnasium's info, not the instantaneous field.
    """
    fields = next_state.fields
    scalars = {f.name: fields[f.name].tolist() for f in card.fields if not f.shape}
    vectors = {f.name: fields[f.name] for f in card.fields if f.shape and f.name != "observation"}
    for axis in ("x", "y"):
        if f"{axis}_position" in scalars:
            moved = fields[f"{axis}_position"] - state.fields[f"{axis}_position"]
            scalars[f"{axis}_velocity"] = (moved / card.time_step).tolist()
    if "x_velocity" in scalars:
        scalars["reward_forward"] = scalars["x_velocity"]
    entry = catalogue().get(card.id)
    if entry is not None and entry.control_cost:
        scalars["reward_ctrl"] = (-entry.control_cost * np.square(action).sum(-1)).tolist()
    scalars["_episode_start"] = starting.tolist()
    names, columns = list(scalars), list(scalars.values())
    for index, values in enumerate(zip(*columns, strict=True)):
        info = dict(zip(names, values, strict=True))
        for name, array in vectors.items():
            info[name] = array[index]
        yield info


def check_sum(total: float, terms: Mapping[str, float], row: int) -> None:
    """Compare the total with the sum of its terms where both are finite; another check covers values that are not.

    :raises RewardError: the two differ by more than 1e-6 (relative to the larger of 1 and the total).
    """
    expected = sum(terms.values())
    apart = abs(total - expected)
    if math.isfinite(apart) and apart > _SUM_TOLERANCE * max(1.0, abs(total)):
        message = "the total must equal the sum of the terms; return every part of it as a term."
        raise RewardError("terms-sum", message, seen=f"total {total:g}, sum of terms {expected:g}", row=row)
