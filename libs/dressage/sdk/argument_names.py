"""Names in errors: as the arguments of Python's functions, or as the options of the command line.

Work that both share names its options as the command line does (``--budget-dollars``), and a server names the fields of a
session's spec (``spec.budget.dollars``). `python_names` turns both into the names of arguments (``budget_dollars``);
`option_names` turns fields into options. Quoted commands stay as they are.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager

from dressage.errors import DressageError, InvalidArgument

_PART = r"[a-z_]+(?:\[\d+\])?"
_FIELD = re.compile(rf"`[^`]*`|(?<![\w.])(?:spec|template)\.(?P<path>{_PART}(?:\.{_PART})*)")
_OPTION = re.compile(r"`[^`]*`|(?<![\w-])--(?P<option>[a-z]+(?:-[a-z]+)*)|\bINTENT\b|(?<![\w.])options(?=\.\w)")
_ARGUMENTS = {
    "env-option": "env_options",
    "video-option": "video_options",
    "config": "configs",
    "set": "settings",
    "INTENT": "intent",
    "options": "env_options",
}
"""Arguments whose names differ from those of the options."""
_OPTIONS = {
    "env_options": "--env-option",
    "video_options": "--video-option",
    "configs": "--config",
    "settings": "--set",
    "intent": "INTENT",
}
_FIELDS = {
    "environment": "env",
    "environment_options": "env_options",
    "max_iterations": "iterations",
    "pass_threshold": "threshold",
    "judge_source": "judge",
    "approve_before_evaluation": "approve",
    "video_judging": "video",
    "method_spec": "method",
    "custom": "method",
    "roles": "model",
    "reward.steps_per_member": "steps",
    "reward.max_steps_per_member": "steps",
    "reward.reward_source": "reward",
    "reward.config_variants": "variants",
    "reward.tune_hyperparameters": "tune",
    "budget.dollars": "budget_dollars",
    "budget.tokens": "budget_tokens",
    "budget.env_steps": "budget_steps",
    "budget.wall_time": "budget_minutes",
}
"""Arguments whose names differ from those of the fields."""
_REWARD = frozenset({"seeds", "configs", "backend", "algorithm", "early_stop", "patience", "from_parent", "checkpoint"})
"""Settings of the method `reward` that are arguments of their own."""
_METHODS = ("reward", "parameters", "code", "program", "custom")


@contextmanager
def python_names() -> Iterator[None]:
    """Name arguments in the message of an error: ``--data-dir`` becomes ``data_dir``, ``spec.seed`` becomes ``seed``."""

    def rename(text: str) -> str:
        text = _FIELD.sub(_renaming(lambda argument, inner: f"{argument}.{inner}" if inner else argument), text)
        return _OPTION.sub(_python_name, text)

    with _renamed(rename):
        yield


@contextmanager
def option_names(
    arguments: Collection[str] | None = None, *, request: Mapping[str, str] | None = None
) -> Iterator[None]:
    """Name options in the message of an error: ``spec.reward.seeds`` becomes ``--seeds``.

    :param arguments: names of arguments or fields that are options of this command line; others are those of a file and stay.
        By default all.
    :param request: options by field of a request that is no spec.
    """
    known = None if arguments is None else {_FIELDS.get(name, name) for name in arguments}

    def option(argument: str, inner: str) -> str:
        if known is not None and argument not in known:
            return ""
        name = _OPTIONS.get(argument) or f"--{argument.replace('_', '-')}"
        return f"{name} {inner}" if inner else name

    def rename(text: str) -> str:
        field, colon, rest = text.partition(":")
        if request and field in request:
            text = f"{request[field]}{colon}{rest}"
        return _FIELD.sub(_renaming(option), text)

    with _renamed(rename):
        yield


@contextmanager
def _renamed(rename: Callable[[str], str]) -> Iterator[None]:
    try:
        yield
    except DressageError as error:
        error.message = rename(error.message)
        error.args = (error.message,)
        if isinstance(error, InvalidArgument):
            error.field = rename(error.field)
        raise


def _python_name(match: re.Match[str]) -> str:
    if match.group().startswith("`"):
        return match.group()
    option = match.group("option") or match.group()
    return _ARGUMENTS.get(option, option.replace("-", "_"))


def _renaming(name: Callable[[str, str], str]) -> Callable[[re.Match[str]], str]:
    """Return a function that renames a matched field; `name` returns an empty text for a field that keeps its name."""

    def renamed(match: re.Match[str]) -> str:
        path = match.group("path")
        return (name(*_argument(path)) if path else "") or match.group()

    return renamed


def _argument(path: str) -> tuple[str, str]:
    """Return the argument of a field of a spec, and what in the argument's value the field is.

    A config of several is known by the refused value.
    """
    parts = re.sub(r"\[\d+\]|\bhyperparameters\.", "", path).split(".")
    if argument := _FIELDS.get(".".join(parts[:2])):
        return argument, ".".join(parts[2:])
    if parts[0] not in _METHODS or len(parts) == 1:
        return _FIELDS.get(parts[0], parts[0]), ".".join(parts[1:])
    if (parts[0] == "reward" and parts[1] in _REWARD) or parts[1:] == ["target"]:
        return parts[1], ".".join(parts[2:])
    return "settings", ".".join(parts[1:])
