"""Loads and runs generated judges. Call it only inside a sandbox: it runs generated code.

A judge receives the fields of a trajectory as read-only arrays with a leading time axis.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import CodeType
from typing import Any, NoReturn

import numpy as np

from dressage.contracts import execute, namespace
from dressage.contracts.failures import JudgeError
from dressage.contracts.source import lint_judge
from dressage.contracts.syntax import parse
from dressage.envs.cards import EnvironmentCard, load_card
from dressage.envs.trajectory import Trajectory
from dressage.errors import ReadOnly, UnknownField
from dressage.sandbox.output import excerpt

_MAX_ENTRIES = 64
_MAX_NAME = 120
_NAMES = execute.ALLOWED_BUILTINS | execute.EXCEPTIONS


@dataclass(frozen=True)
class JudgeModule:
    """A loaded judge."""

    function: Callable[..., Any]
    line: int
    """Line of its definition."""
    code: CodeType

    def load(self) -> JudgeModule:
        """Return the judge of a module that is run anew, which was never called before."""
        scope = execute.module_globals(_NAMES, {"np": namespace.array_namespace("numpy", wide=True)})
        execute.call(exec, self.code, scope, kind=JudgeError, action="loading the judge")
        return replace(self, function=scope["judge"])


@dataclass(frozen=True)
class JudgeResult:
    """A judge's result for one trajectory: scores in 0..1, evidence as finite numbers."""

    score: float
    criteria: dict[str, float]
    evidence: dict[str, float]

    def to_dict(self) -> dict[str, Any]:
        """Return the result as JSON values."""
        return {"score": self.score, "criteria": dict(self.criteria), "evidence": dict(self.evidence)}


class TrajectoryView:
    """The argument of a judge: fields as (T+1, …) arrays, ``action`` (T, A), stock ``reward`` (T,), and a few facts."""

    def __init__(self, trajectory: Trajectory) -> None:
        values: dict[str, Any] = {name: _freeze(array) for name, array in trajectory.fields.items()}
        values["action"], values["reward"] = _freeze(trajectory.action), _freeze(trajectory.reward)
        values |= {
            "num_steps": trajectory.num_steps,
            "terminated": trajectory.terminated,
            "truncated": trajectory.truncated,
            "environment": trajectory.environment,
            "time_step": load_card(trajectory.environment).time_step,
        }
        self.__dict__.update(values)

    def __getattr__(self, name: str) -> NoReturn:
        raise UnknownField("trajectory", name, list(self.__dict__))

    def __setattr__(self, name: str, value: object) -> None:
        raise ReadOnly(f"the trajectory is read-only: cannot set {name!r}")


def _freeze(array: Any) -> Any:
    # float64, so that a judge's sums do not depend on how a trajectory was stored.
    copy = np.array(array, np.float64)
    copy.flags.writeable = False
    return copy


def load_judge(source: str, card: EnvironmentCard | None = None) -> JudgeModule:
    """Compile and load a judge. Call it inside a sandbox only.

    :param card: lint against it first; None where the judge was checked before.
    :raises JudgeError: with the first violation, or the error raised while loading.
    """
    if card is not None:
        violations = lint_judge(source, card)
        if violations:
            first = violations[0]
            raise JudgeError(first.rule, first.message, line=first.line)
    tree = parse(source, owner="judge")
    if not isinstance(tree, ast.Module):
        raise JudgeError(tree.rule, tree.message, line=tree.line)
    lines = [node.lineno for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == "judge"]
    if not lines:
        raise JudgeError("signature", "there is no function judge; define it as judge(trajectory, np).")
    return JudgeModule(_not_loaded, lines[-1], execute.compile_tree(tree)).load()


def _not_loaded(*_: Any) -> NoReturn:
    raise AssertionError


def run_judge(module: JudgeModule, trajectory: Trajectory) -> JudgeResult:
    """Return the judge's validated result for a trajectory.

    :raises JudgeError: the judge raised, or its result breaks the contract.
    """
    array_functions = namespace.array_namespace("numpy", wide=True)
    view = TrajectoryView(trajectory)
    value = execute.call(module.function, view, array_functions, kind=JudgeError, action="the judge")
    return validate_result(value, line=module.line)


def validate_result(value: Any, *, line: int = 0) -> JudgeResult:
    """Check the value that a judge returned.

    :raises JudgeError: naming the invalid entry.
    """
    contract = 'return {"score": 0..1, "criteria": {name: 0..1}, "evidence": {name: number}}'
    if not isinstance(value, dict) or set(value) != {"score", "criteria", "evidence"}:
        seen = f"keys {sorted(map(str, value))}" if isinstance(value, dict) else type(value).__name__
        raise JudgeError("return-type", f"the judge must {contract}.", line=line, seen=seen)
    score = _number(value["score"], "score", line, unit=True)
    criteria = _numbers(value["criteria"], "criteria", line, unit=True)
    if not criteria:
        raise JudgeError("criteria", "the judge must score at least one criterion.", line=line, seen="{}")
    return JudgeResult(score, criteria, _numbers(value["evidence"], "evidence", line, unit=False))


def _numbers(value: Any, name: str, line: int, *, unit: bool) -> dict[str, float]:
    if not isinstance(value, Mapping) or len(value) > _MAX_ENTRIES:
        message = f"{name} must be a dict of at most {_MAX_ENTRIES} entries."
        raise JudgeError("return-type", message, line=line, seen=type(value).__name__)
    for key in value:
        if not isinstance(key, str) or not 0 < len(key) <= _MAX_NAME:
            raise JudgeError("return-type", f"names in {name} must be short strings.", line=line, seen=repr(key))
    return {excerpt(key, _MAX_NAME): _number(item, f"{name}[{key!r}]", line, unit=unit) for key, item in value.items()}


def _number(value: Any, name: str, line: int, *, unit: bool) -> float:
    if isinstance(value, (np.generic, np.ndarray)) and np.ndim(value) == 0:
        value = value.item()
    if not isinstance(value, (bool, int, float)):
        raise JudgeError("return-type", f"{name} must be a number.", line=line, seen=type(value).__name__)
    try:
        number = float(value)
    except OverflowError:  # an integer beyond the range of a float
        number = math.inf
    if not math.isfinite(number):
        message = f"{name} is not finite; guard divisions and empty selections."
        raise JudgeError("finite", message, line=line, seen=str(number))
    if unit and not 0.0 <= number <= 1.0:
        raise JudgeError("range", f"{name} must lie in 0..1; clip it.", line=line, seen=f"{number:g}")
    return number
