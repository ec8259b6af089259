"""Loads rewards and evaluates them on batches. Call it only inside a sandbox: it runs generated code.

Both styles have one interface, `BatchReward`: arrays of N environments in, {term: (N,)} out. Every call is checked,
because a reward may become non-finite in a state that no check covered.
"""

from __future__ import annotations

import ast
import functools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import CodeType
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from dressage.contracts import execute, namespace, per_step
from dressage.contracts.failures import RewardError
from dressage.contracts.memory import Memory
from dressage.contracts.source import lint_reward
from dressage.contracts.syntax import Style, literal, parse, reward_style, term_lines
from dressage.envs.cards import EnvironmentCard
from dressage.envs.state import State
from dressage.sandbox.heartbeat import heartbeat
from dressage.sandbox.pipe import encode, unpack

Float = NDArray[np.float64]
_MEMORY = "memory/"
_STARTING = "starting"
_ROWS = "rows"
_VALUE_ERRORS = (ArithmeticError, ValueError)
"""Raised by arithmetic for some values, such as a division by zero or `math.sqrt(-1)`."""


@dataclass(frozen=True)
class RewardModule:
    """A loaded reward.

    ``function`` is ``reward`` itself (vectorised), or the factory of instances for one environment (per_step).
    """

    latex: str
    terms: Mapping[str, str]
    memory: Mapping[str, float]
    function: Callable[..., Any]
    style: Style
    lines: Mapping[str, int]
    """Line that computes each term, where it is known."""
    line: int = 0
    """Line at which the function or the class of the reward begins."""
    load: Callable[[], Callable[..., Any]] | None = None
    """Runs a vectorised module anew and returns its ``reward``, which was never called before."""


@dataclass(frozen=True)
class RewardOutput:
    """Rewards of one step: each term (N,) float64, and their sum ``total`` (N,) float64.

    Where a per-step reward returns a total that is not finite, ``total`` has that value.
    """

    total: Float
    terms: dict[str, Float]
    raised: dict[int, str] = field(default_factory=dict)
    """Exceptions by row, of rows that are NaN because their arithmetic raised (for example a division by zero)."""


def load_reward(source: str, card: EnvironmentCard) -> RewardModule:
    """Lint, compile and load a reward. Call it inside a sandbox only.

    :raises RewardError: with the first violation, or the error raised while loading.
    """
    violations = lint_reward(source, card)
    if violations:
        first = violations[0]
        raise RewardError(first.rule, first.message, line=first.line)
    tree = parse(source, owner="reward")
    assert isinstance(tree, ast.Module)
    style = reward_style(tree)
    lines = term_lines(tree)
    if style == "per_step":
        factory = per_step.make_factory(tree)
        latex, terms = per_step.describe(factory, tree, card)
        return RewardModule(latex, terms, {}, factory, "per_step", lines, _line_of(tree, factory.entry))
    literals = {name: literal(tree, name) for name in ("LATEX", "TERMS", "MEMORY")}
    declared = {name: entry[0] for name, entry in literals.items() if entry is not None}
    load = functools.partial(_run_module, execute.compile_tree(_Rebind().visit(tree)))
    memory = {name: float(value) for name, value in declared.get("MEMORY", {}).items()}
    line = _line_of(tree, "reward")
    return RewardModule(declared["LATEX"], declared["TERMS"], memory, load(), "vectorised", lines, line, load)


def _run_module(code: CodeType) -> Callable[..., Any]:
    scope = execute.module_globals(execute.ALLOWED_BUILTINS, {"np": namespace.array_namespace("numpy")})
    execute.call(exec, code, scope, kind=RewardError, action="loading the reward")
    function: Callable[..., Any] = scope["reward"]
    return function


def _line_of(tree: ast.Module, name: str) -> int:
    named = (node for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name == name)
    return next((node.lineno for node in named), 0)


class _Rebind(ast.NodeTransformer):
    """Turns ``x += y`` into ``x = x + y``: numpy would write into the array, jax.numpy would not."""

    def visit_AugAssign(self, node: ast.AugAssign) -> ast.AST:
        target = node.target
        if isinstance(target, ast.Name):
            operand: ast.expr = ast.Name(target.id, ast.Load())
        elif isinstance(target, ast.Attribute):
            operand = ast.Attribute(target.value, target.attr, ast.Load())
        else:
            return node
        value = ast.BinOp(ast.copy_location(operand, node), node.op, node.value)
        return ast.copy_location(ast.Assign([target], ast.copy_location(value, node)), node)


class BatchReward:
    """Evaluates a reward on N environments and keeps its memory.

    :param module: from `load_reward`.
    :param card: of the environment.
    :param num_envs: N.
    :param backend: library behind ``np`` of a vectorised reward.
    :param on_not_finite: how to handle NaN and infinities: "raise" an error, or "return" them, for a caller that drops the
        rows concerned and continues with the others. Arithmetic errors of a per-step reward are then NaN, as in numpy.
    """

    def __init__(
        self,
        module: RewardModule,
        card: EnvironmentCard,
        num_envs: int,
        *,
        backend: namespace.Backend = "numpy",
        on_not_finite: Literal["raise", "return"] = "raise",
    ) -> None:
        self._raises = on_not_finite == "raise"
        self._module, self._card, self._size = module, card, num_envs
        self._names = list(module.terms)
        self._keys = module.terms.keys()
        self._shape = (num_envs,)
        self._np = namespace.array_namespace(backend)
        self._memory = Memory(module.memory, num_envs)
        self._rows: list[per_step.StepReward] = []
        self._raised: dict[int, str] = {}
        self._starting = np.ones(num_envs, bool)
        self.reset()

    def reset(self, mask: NDArray[np.bool_] | None = None) -> None:
        """Start new episodes.

        :param mask: (N,) environments concerned; None: all of them.
        """
        if self._module.style == "vectorised":
            if self._module.memory:
                self._memory._reset(mask)
            return
        chosen = np.ones(self._size, bool) if mask is None else np.asarray(mask, bool)
        self._starting |= chosen
        if not self._rows:
            self._rows = [self._module.function() for _ in range(self._size)]
            return
        for index in np.flatnonzero(chosen):
            self._rows[index] = self._module.function()

    def keep(self, count: int) -> None:
        """Continue with the first ``count`` environments only; the others have no next step."""
        self._size, self._shape = count, (count,)
        self._memory._keep(count)
        self._rows, self._starting = self._rows[:count], self._starting[:count]

    def __call__(self, state: State, action: NDArray[Any], next_state: State) -> RewardOutput:
        """Return the rewards of one step of every environment.

        :param state: fields before the step, leading axis N.
        :param action: (N, A), as given to the environment; (N,) for discrete actions.
        :param next_state: fields after the step, before any auto-reset.
        :raises RewardError: the code raised, or its output has wrong terms, shape or dtype, or a non-finite value with
            ``on_not_finite="raise"``.
        """
        if self._module.style == "vectorised":
            stacked = self._call_vectorised(state, action, next_state)
            total = stacked.sum(0)
        else:
            stacked, total = self._row_by_row(state, action, next_state)
        # A sum is finite only if its parts are (or cancel as inf - inf, which is nan), so one small test does.
        if self._raises and not math.isfinite(total.sum()) and not np.isfinite(total).all():
            self._refuse(stacked, total)
        return RewardOutput(total, dict(zip(self._names, stacked, strict=True)), self._raised)

    def snapshot(self) -> dict[str, NDArray[Any]]:
        """Return the memory of all environments, for a bit-exact resume.

        :raises RewardError: a per-step reward keeps state other than numbers, strings, arrays, lists and dicts of these.
        """
        if self._module.style == "vectorised":
            return {_MEMORY + name: values for name, values in self._memory._snapshot().items()}
        try:
            packed = encode({"rows": [row.state() for row in self._rows]})
        except Exception as error:
            message = "the reward's state cannot be saved; keep only numbers, arrays, lists and dicts between steps."
            raise RewardError("state", message, seen=str(error)) from error
        return {_STARTING: self._starting.copy(), _ROWS: np.frombuffer(packed, np.uint8).copy()}

    def restore(self, snapshot: Mapping[str, NDArray[Any]]) -> None:
        """Restore what `snapshot` returned, for the same module and N."""
        if self._module.style == "vectorised":
            self._memory._restore({name: snapshot[_MEMORY + name] for name in self._module.memory})
            return
        self._starting = np.array(snapshot[_STARTING], bool)
        self._rows = [self._module.function() for _ in range(self._size)]
        for row, values in zip(self._rows, unpack(snapshot[_ROWS].tobytes())["rows"], strict=True):
            row.restore(values)

    def _call_vectorised(self, state: State, action: NDArray[Any], next_state: State) -> Float:
        stacked = np.empty((len(self._names), self._size))
        values = call_vectorised(self._module, self._shape, state, action, next_state, self._memory, self._np)
        for index, value in enumerate(values):
            stacked[index] = value
        return stacked

    def _row_by_row(self, state: State, action: NDArray[Any], next_state: State) -> tuple[Float, Float]:
        stacked, totals = np.empty((len(self._names), self._size)), np.empty(self._size)
        self._raised = {}
        before, after = np.asarray(state.observation), np.asarray(next_state.observation)
        per_row = per_step.infos(self._card, state, action, next_state, self._starting)
        for index, info in enumerate(per_row):
            try:
                total, terms = self._rows[index](before[index], action[index], after[index], info)
            except RewardError as error:
                error.row = index
                if self._raises or error.rule != "exception" or not isinstance(error.__cause__, _VALUE_ERRORS):
                    raise
                self._raised[index] = f"{error.seen} (line {error.line})"
                stacked[:, index] = totals[index] = np.nan
                continue
            if terms.keys() != self._keys:
                raise _wrong_terms(self._module, terms)
            stacked[:, index], totals[index] = [terms[name] for name in self._names], total
            per_step.check_sum(total, terms, index)
        self._starting[:] = False
        # A row that raised may have updated half of its state, so it gets a new instance.
        for index in self._raised:
            self._rows[index], self._starting[index] = self._module.function(), True
        return stacked, np.where(np.isfinite(totals), stacked.sum(0), totals)

    def _refuse(self, stacked: Float, total: Float) -> None:
        remedy = "guard divisions, logarithms, roots and exponentials."
        if np.isfinite(stacked).all():
            row = int(np.flatnonzero(~np.isfinite(total))[0])
            message = f"the total is not finite, though its terms are; {remedy}"
            raise RewardError("finite", message, seen=str(total[row]), term="total", row=row)
        term, row = (int(indices[0]) for indices in np.nonzero(~np.isfinite(stacked)))
        name = self._names[term]
        message = f"the term {name} is not finite; {remedy}"
        seen, line = str(stacked[term, row]), self._module.lines.get(name, 0)
        raise RewardError("finite", message, line=line, seen=seen, term=name, row=row)


def call_vectorised(
    module: RewardModule,
    shape: tuple[int],
    state: State,
    action: Any,
    next_state: State,
    memory: Memory,
    np: namespace.ArrayNamespace,
) -> list[Any]:
    """Call a vectorised reward once.

    :param shape: (N,).
    :param np: the array functions of the library that the arrays belong to.
    :returns: its terms in their order, each (N,) and floating point.
    :raises RewardError: the code raised, or its output has wrong terms, shape or dtype.
    """
    try:
        with heartbeat():
            values = module.function(state, action, next_state, memory, np)
    except (Exception, SystemExit) as error:
        raise execute.translate_error(error, RewardError, action="the reward") from error
    if type(values) is not dict or values.keys() != module.terms.keys():
        raise _wrong_terms(module, values)
    arrays = [values[name] for name in module.terms]
    for name, value in zip(module.terms, arrays, strict=True):
        if getattr(value, "shape", None) != shape or value.dtype.kind != "f":
            raise _wrong_array(module, shape, name, value)
    return arrays


def _wrong_terms(module: RewardModule, values: Any) -> RewardError:
    if not isinstance(values, dict):
        message = "the reward must return a dict {term: (N,) array}."
        return RewardError("return-type", message, seen=type(values).__name__)
    declared = module.terms.keys()
    missing, extra = sorted(declared - values.keys()), sorted(map(str, values.keys() - declared))
    message = f"the reward must return exactly the declared terms: {', '.join(declared)}."
    line = next((module.lines[name] for name in (*extra, *missing) if name in module.lines), 0)
    return RewardError("terms", message, line=line, seen=f"missing {missing}, undeclared {extra}")


def _wrong_array(module: RewardModule, expected: tuple[int], name: str, value: Any) -> RewardError:
    line, shape = module.lines.get(name, 0), getattr(value, "shape", None)
    if shape != expected:
        seen = f"shape {shape} for N = {expected[0]}" if shape is not None else type(value).__name__
        message = (
            f"the term {name} must be an (N,) array; reduce vectors with .sum(-1), spread numbers with np.full_like."
        )
        return RewardError("shape", message, line=line, seen=seen, term=name)
    message = f"the term {name} must be floating point; multiply it by 1.0."
    return RewardError("dtype", message, line=line, seen=str(value.dtype), term=name)
