"""The cells of an experiment: one session each, with an id that does not depend on limits.

The id is a digest of what a session computes: environment, method, settings, model and seed. Budgets and the number of runs are
not in it, so that extending them finds the sessions that exist.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dressage.api.v1 import session_pb2 as pb
from dressage.client.names import environment_name
from dressage.errors import InvalidArgument
from dressage.experiments.schema import EnvironmentEntry, Experiment, Limits, MethodEntry, Setting
from dressage.sdk import methods
from dressage.sdk.fields import set_fields

SEARCH_LIMITS = {"episodes": "episode_budget", "programs": "budget"}
"""Limits that are settings of search methods: the name in the file → the setting."""
_DIGEST = 16


@dataclass(frozen=True)
class Cell:
    """A run of a method in an environment."""

    session: str
    """Id of the session."""
    experiment: str
    environment: str
    """Name of the environment in the experiment; its id, unless the experiment gives it another one."""
    method: str
    """Name of the method in the experiment."""
    run: int
    """Number of the run, from 0."""
    spec: pb.SessionSpec
    score_range: tuple[float, float] | None
    """Returns that count as 0 and 1; None: those of the compared runs."""

    @property
    def label(self) -> str:
        """The cell in words."""
        return f"{self.environment} {self.method} run {self.run}"

    @property
    def limits(self) -> dict[str, Any]:
        """The limits of the session; those that are not set are left out."""
        return limits_of(self.spec)


def cells(experiment: Experiment) -> list[Cell]:
    """Return the cells, run by run, so that an interrupted experiment has complete runs.

    :raises InvalidArgument: naming the path of a setting that the method does not have, or whose value it cannot be.
    """
    rows = []
    for run in range(max(_runs(experiment, environment) for environment in experiment.environments)):
        for number, environment in enumerate(experiment.environments):
            if run >= _runs(experiment, environment):
                continue
            for index, method in enumerate(experiment.methods):
                if method.environments and environment.label not in method.environments:
                    continue
                places = (f"methods[{index}]", f"environments[{number}]")
                rows.append(_cell(experiment, environment, method, run, places))
    return rows


def _runs(experiment: Experiment, environment: EnvironmentEntry) -> int:
    return experiment.runs if environment.runs is None else environment.runs


def _cell(
    experiment: Experiment, environment: EnvironmentEntry, method: MethodEntry, run: int, places: tuple[str, str]
) -> Cell:
    seed = experiment.first_seed + run * experiment.seed_step
    intent = environment.intent or experiment.intent
    spec = pb.SessionSpec(intent=intent, environment=environment_name(environment.id), model=method.model, seed=seed)
    set_fields(spec.environment_options, environment.options, field=f"{places[1]}.options")
    try:
        methods.set_method(spec, method.method, {})
    except InvalidArgument as error:
        raise error.rename(lambda field: f"{places[0]}.{field}") from None
    for place, settings in ((places[0], method.settings), (places[1], environment.settings)):
        _set(spec, method.method, settings, place)
    identity = _identity(experiment, environment, method, seed=seed, intent=intent)
    _limit(spec, experiment.budget, method=method.method)
    return Cell(
        session=f"{experiment.name}-{identity}",
        experiment=experiment.name,
        environment=environment.label,
        method=method.name,
        run=run,
        spec=spec,
        score_range=environment.score_range,
    )


def _set(spec: pb.SessionSpec, method: str, settings: Mapping[str, Setting], place: str) -> None:
    for name, value in settings.items():
        if limit := next((limit for limit, setting in SEARCH_LIMITS.items() if setting == name), ""):
            field = f"{place}.settings.{name}"
            problem = "a limit, not a setting"
            raise InvalidArgument(field=field, problem=problem, value=value, remedy=f"Set it as budget.{limit}.")
        methods.set_method(spec, method, {name: value}, field=f"{place}.settings")


def _identity(
    experiment: Experiment, environment: EnvironmentEntry, method: MethodEntry, *, seed: int, intent: str
) -> str:
    """Return a digest of all that determines what a session computes, except its limits."""
    content = {
        "experiment": experiment.name,
        "environment": environment.id,
        "options": environment.options,
        "intent": intent,
        "name": method.name,
        "method": method.method,
        "settings": {**method.settings, **environment.settings},
        "model": method.model,
        "seed": seed,
    }
    if environment.name:  # not in the digests of experiments without names
        content["entry"] = environment.name
    text = json.dumps(content, sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()[:_DIGEST]


def _limit(spec: pb.SessionSpec, limits: Limits, *, method: str) -> None:
    if limits.iterations is not None:
        spec.max_iterations = limits.iterations
    if limits.dollars is not None:
        spec.budget.dollars = limits.dollars
    if limits.minutes is not None:
        spec.budget.wall_time.FromMilliseconds(round(60_000 * limits.minutes))
    if limits.tokens or limits.env_steps:
        spec.budget.tokens, spec.budget.env_steps = limits.tokens or 0, limits.env_steps or 0
    for name, setting in SEARCH_LIMITS.items():
        value = getattr(limits, name)
        if value is None:
            continue
        settings = methods.settings_of(spec)
        if settings is None or setting not in settings.DESCRIPTOR.fields_by_name:
            problem = f"the method {method!r} has no {name.removesuffix('s')} budget"
            raise InvalidArgument(field=f"budget.{name}", problem=problem, value=value)
        methods.set_method(spec, method, {setting: value})


def limits_of(spec: pb.SessionSpec) -> dict[str, Any]:
    """Return the limits of a spec by their names in the file; those that are not set are left out."""
    settings = methods.settings_of(spec)
    budget = spec.budget
    limits = {
        "iterations": spec.max_iterations,
        "dollars": budget.dollars if budget.HasField("dollars") else None,
        "tokens": budget.tokens,
        "env_steps": budget.env_steps,
        "minutes": budget.wall_time.ToSeconds() / 60 if budget.HasField("wall_time") else None,
        **{name: getattr(settings, setting, 0) for name, setting in SEARCH_LIMITS.items()},
    }
    return {
        name: value for name, value in limits.items() if value not in (None, 0) or (name == "dollars" and value == 0)
    }
