"""Static checks of generated sources: an allow-list over the syntax tree. Lint, not security: see `dressage.sandbox`.

A module that defines ``reward`` is a vectorised reward; one with a class with ``compute``, ``_make_reward`` or a bare
``reward_fn`` (the forms of Prompt2Policy) is a per-step reward. Every violation names the rule, the line and the remedy,
ready for a repair prompt. All violations are reported at once.
"""

from __future__ import annotations

import ast
from typing import Any

from dressage.contracts import namespace
from dressage.contracts.execute import ALLOWED_BUILTINS, CLASS_BUILTINS, EXCEPTIONS
from dressage.contracts.failures import Violation
from dressage.contracts.lint import MAX_VIOLATIONS, Lint
from dressage.contracts.syntax import MAX_TERMS, literal, parse, reward_class, reward_style
from dressage.envs.cards import EnvironmentCard

REWARD_PARAMETERS = ("state", "action", "next_state", "memory", "np")
JUDGE_PARAMETERS = ("trajectory", "np")
TRAJECTORY_NAMES = frozenset(
    {"action", "reward", "time", "num_steps", "terminated", "truncated", "environment", "time_step"}
)


def lint_reward(source: str, card: EnvironmentCard) -> list[Violation]:
    """Check a reward's source without running it.

    :param card: names the fields of ``state`` and ``next_state``.
    :returns: violations in order of their lines, at most 50; empty when there is none.
    """
    tree = parse(source, owner="reward")
    if isinstance(tree, Violation):
        return [tree]
    style = reward_style(tree)
    if style is None:
        message = (
            "no reward is defined; define reward(state, action, next_state, memory, np) at module level, or a class "
            "with compute(self, obs, action, next_obs, info)."
        )
        return [Violation("no-reward", 0, message)]
    fields = frozenset(card.field_names)
    if style == "per_step":
        names = ALLOWED_BUILTINS | CLASS_BUILTINS | EXCEPTIONS | {"np", "math", "RewardFunction", "print"}
        lint = Lint("per_step", names, namespace.JUDGE_NAMES, {}, "reward")
        lint.walk(tree)
        _check_per_step(tree, lint)
    else:
        memory = _check_declarations(tree)
        fields_by_name = {"state": fields, "next_state": fields, "memory": memory.fields["memory"]}
        lint = Lint("vectorised", ALLOWED_BUILTINS | {"np", "math"}, namespace.REWARD_NAMES, fields_by_name, "reward")
        lint.violations += memory.violations
        lint.walk(tree)
        _check_signature(tree, "reward", REWARD_PARAMETERS, lint)
    return _sort(lint.violations)


def lint_judge(source: str, card: EnvironmentCard) -> list[Violation]:
    """Check a judge's source without running it; as `lint_reward`."""
    tree = parse(source, owner="judge")
    if isinstance(tree, Violation):
        return [tree]
    fields = {"trajectory": frozenset(card.field_names) | TRAJECTORY_NAMES}
    lint = Lint("judge", ALLOWED_BUILTINS | EXCEPTIONS | {"np", "math"}, namespace.JUDGE_NAMES, fields, "judge")
    lint.walk(tree)
    _check_signature(tree, "judge", JUDGE_PARAMETERS, lint)
    return _sort(lint.violations)


def _sort(violations: list[Violation]) -> list[Violation]:
    return sorted(violations, key=lambda violation: (violation.line, violation.rule))[:MAX_VIOLATIONS]


def _check_signature(tree: ast.Module, name: str, expected: tuple[str, ...], lint: Lint) -> None:
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == name]
    remedy = f"define it as {name}({', '.join(expected)})"
    if not functions:
        lint.report("signature", 0, f"there is no function {name} at module level; {remedy}.")
        return
    arguments = functions[-1].args
    names = tuple(argument.arg for argument in arguments.posonlyargs + arguments.args)
    if names != expected or arguments.vararg or arguments.kwarg or arguments.kwonlyargs:
        lint.report("signature", functions[-1], f"{name} takes ({', '.join(names)}); {remedy}.")
    if functions[-1].decorator_list:
        lint.report("signature", functions[-1], f"{name} may not be decorated; remove the decorator.")


def _check_declarations(tree: ast.Module) -> Lint:
    """Check LATEX, TERMS and MEMORY; the result has the violations and the names in memory."""
    lint = Lint("vectorised", frozenset(), frozenset(), {"memory": frozenset()}, "reward")
    latex = literal(tree, "LATEX")
    if latex is None or not isinstance(latex[0], str) or not latex[0].strip():
        lint.report(
            "latex",
            latex[1] if latex else 0,
            'LATEX is missing; write LATEX = r"…", the reward as a formula.',
        )
    terms = literal(tree, "TERMS")
    if terms is None or not _is_terms(terms[0]):
        message = (
            f'TERMS must be a literal {{"term": "meaning, unit"}} of 1 to {MAX_TERMS} terms; write what reward returns.'
        )
        lint.report("terms", terms[1] if terms else 0, message)
    memory = literal(tree, "MEMORY")
    if memory is not None and not _is_memory(memory[0]):
        message = 'MEMORY must be a literal {"name": number} with names that are identifiers; vectors are not possible.'
        lint.report("memory", memory[1], message)
    elif memory is not None:
        lint.fields["memory"] = frozenset(memory[0])
    return lint


def _is_terms(value: Any) -> bool:
    return (
        isinstance(value, dict)
        and 1 <= len(value) <= MAX_TERMS
        and all(isinstance(k, str) and 0 < len(k) <= 64 and isinstance(v, str) for k, v in value.items())
    )


def _is_memory(value: Any) -> bool:
    return (
        isinstance(value, dict)
        and len(value) <= MAX_TERMS
        and all(isinstance(k, str) and k.isidentifier() and not k.startswith("_") for k in value)
        and all(isinstance(v, (int, float)) and abs(v) < float("inf") for v in value.values())
    )


def _check_per_step(tree: ast.Module, lint: Lint) -> None:
    definition = reward_class(tree)
    if definition is not None:
        compute = next(i for i in definition.body if isinstance(i, ast.FunctionDef) and i.name == "compute")
        _check_count(compute, 5, "compute(self, obs, action, next_obs, info)", lint)
        return
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name == "reward_fn":
            _check_count(node, 4, "reward_fn(obs, action, next_obs, info)", lint)


def _check_count(function: ast.FunctionDef, count: int, signature: str, lint: Lint) -> None:
    arguments = function.args
    if len(arguments.posonlyargs) + len(arguments.args) != count or arguments.vararg or arguments.kwonlyargs:
        lint.report("signature", function, f"{function.name} has other parameters; define it as {signature}.")
