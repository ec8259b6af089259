"""The file of a benchmark, as the request that creates it: a YAML file with a matrix, or a CSV or JSON file with cases.

A case's session id is a digest of what the session computes: environment, method, settings, model and seed. Limits and the
number of runs are not in it, so that extending them finds the sessions that exist (decision 0079).
"""

from __future__ import annotations

import csv
import hashlib
import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from dressage.api.v1 import benchmark_service_pb2 as pb
from dressage.api.v1 import session_pb2
from dressage.client.names import environment_name
from dressage.errors import FailedPrecondition, InvalidArgument
from dressage.experiments.records import SEARCH_LIMITS, environment_label
from dressage.experiments.schema import (
    REMEDY,
    EnvironmentEntry,
    Experiment,
    Limits,
    MethodEntry,
    Setting,
    first_problem,
)
from dressage.installation import install_command
from dressage.sdk import methods
from dressage.sdk.fields import set_fields
from dressage.sdk.files import read_source

MATRIX_SUFFIXES = (".yaml", ".yml")
COLUMNS = ("env_id", "instruction", "category", "difficulty")
_FIELDS = ("environment", "intent", "category", "difficulty")
"""Fields of a case, in the order of the columns."""
_REQUIRED = 2
_DIGEST = 16
_LONGEST_NAME = 40


@dataclass(frozen=True)
class Plan:
    """What a file asks for."""

    name: str
    """Name of the experiment in its results."""
    request: pb.CreateBenchmarkRequest
    methods: Sequence[str]
    """Names of the methods in the order of the file."""

    @property
    def environments(self) -> list[str]:
        """Names of the environments in the order of the file."""
        return list(dict.fromkeys(environment_label(case) for case in self.request.cases))


def read_matrix(path: Path) -> Plan:
    """Read the cells of an experiment: environments × methods × runs.

    :raises InvalidArgument: as `read_experiment`, or for an experiment without cells.
    """
    experiment = read_experiment(path)
    request = pb.CreateBenchmarkRequest(name=f"benchmarks/{experiment.name}", cases=cells(experiment))
    if not request.cases:
        raise InvalidArgument(field=path.name, problem="no cells", expected="a method that runs in an environment")
    return Plan(experiment.name, request, [method.name for method in experiment.methods])


def read_cases(path: Path, template: session_pb2.SessionSpec) -> Plan:
    """Read the cases of a CSV or JSON file.

    :param template: settings of all cases.
    :raises InvalidArgument: naming the invalid column, line or case.
    """
    cases = _json_cases(path) if path.suffix.lower() == ".json" else _csv_cases(path)
    name = re.sub(r"[^a-z0-9]+", "-", path.stem.lower()).strip("-")
    name = (name if name[:1].isalpha() else f"b-{name}")[:_LONGEST_NAME].strip("-")
    shared = session_pb2.SessionSpec()
    shared.CopyFrom(template)
    for limit in ("max_iterations", "budget"):
        shared.ClearField(limit)
    settings, counts = shared.SerializeToString(deterministic=True).hex(), Counter[tuple[str, str]]()
    for case in cases:
        case.run = counts[case.environment, case.intent]
        counts[case.environment, case.intent] += 1
        content = {"environment": case.environment, "intent": case.intent, "template": settings, "run": case.run}
        case.session_id = f"{name}-{_digest(content)}"
    whole = [[case.session_id, case.category, case.difficulty] for case in cases]
    request = pb.CreateBenchmarkRequest(name=f"benchmarks/{name}-{_digest(whole)}", template=template, cases=cases)
    return Plan(name, request, [methods.method_of(template)])


def _digest(content: object) -> str:
    text = json.dumps(content, sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()[:_DIGEST]


def _csv_cases(path: Path) -> list[pb.BenchmarkCase]:
    """Read cases from a CSV with the columns env_id, instruction and, optionally, category and difficulty."""
    reader = csv.DictReader(read_source(path, field="CASES").splitlines())
    columns = [name.strip() for name in reader.fieldnames or ()]
    reader.fieldnames = columns
    if missing := [name for name in COLUMNS[:_REQUIRED] if name not in columns]:
        expected = f"a CSV whose first line has the columns {', '.join(COLUMNS)}"
        raise InvalidArgument(field=f"CASES, column {missing[0]}", problem="missing", value=columns, expected=expected)
    cases = []
    for row in reader:
        values = [(row.get(name) or "").strip() for name in COLUMNS]
        empty = [name for name, value in zip(COLUMNS[:_REQUIRED], values, strict=False) if not value]
        if empty:
            field = f"CASES, line {reader.line_num}, {empty[0]}"
            raise InvalidArgument(field=field, problem="missing", expected="a text")
        cases.append(_case(dict(zip(_FIELDS, values, strict=True))))
    if not cases:
        expected = "at least one line after the first"
        raise InvalidArgument(field="CASES", problem="no cases", value=str(path), expected=expected)
    return cases


def _json_cases(path: Path) -> list[pb.BenchmarkCase]:
    """Read cases from a JSON list of {intent, environment, category?, difficulty?}."""
    try:
        entries = json.loads(read_source(path, field="CASES"))
    except ValueError as error:
        expected = "a JSON list of cases"
        raise InvalidArgument(
            field="CASES", problem=f"not JSON: {error}", value=str(path), expected=expected
        ) from error
    if not isinstance(entries, list) or not entries:
        expected = "a list of at least one case"
        raise InvalidArgument(field="CASES", problem="no cases", value=type(entries).__name__, expected=expected)
    for number, entry in enumerate(entries, start=1):
        valid = isinstance(entry, dict) and set(_FIELDS[:_REQUIRED]) <= set(entry) <= set(_FIELDS)
        if not valid or not all(isinstance(value, str) for value in entry.values()):
            expected = "an object with texts for intent and environment, and optionally category and difficulty"
            raise InvalidArgument(field=f"CASES[{number}]", value=entry, expected=expected)
    return [_case(entry) for entry in entries]


def _case(values: Mapping[str, str]) -> pb.BenchmarkCase:
    case = pb.BenchmarkCase(intent=values["intent"], environment=environment_name(values["environment"]))
    case.category, case.difficulty = values.get("category", ""), values.get("difficulty", "")
    return case


def read_experiment(path: Path) -> Experiment:
    """Read the YAML file of an experiment.

    :raises InvalidArgument: naming the file, the path of the field, the value and what is expected.
    :raises FailedPrecondition: if PyYAML is not installed.
    """
    try:
        import yaml
    except ImportError as error:
        message = f"an experiment needs PyYAML: {install_command('experiments')}"
        raise FailedPrecondition(message, reason="MISSING_PACKAGE") from error
    text = read_source(path, field="FILE")
    try:
        content = yaml.safe_load(text)
    except yaml.YAMLError as error:
        problem = f"not YAML: {' '.join(str(error).split())}"
        raise InvalidArgument(field=path.name, problem=problem, expected="a YAML file") from error
    if not isinstance(content, dict):
        expected = "the fields name, environments, methods and runs"
        raise InvalidArgument(field=path.name, value=type(content).__name__, expected=expected, remedy=REMEDY)
    try:
        return Experiment.model_validate(content)
    except ValidationError as error:
        raise first_problem(path.name, error) from None


def cells(experiment: Experiment) -> list[pb.BenchmarkCase]:
    """Return the cells, run by run, so that an interrupted experiment has complete runs.

    :raises InvalidArgument: naming the path of a setting that the method does not have, or whose value it cannot be.
    """
    rows = []
    for run in range(max(experiment.runs_of(environment) for environment in experiment.environments)):
        for number, environment in enumerate(experiment.environments):
            if run >= experiment.runs_of(environment):
                continue
            for index, method in enumerate(experiment.methods):
                if method.environments and environment.label not in method.environments:
                    continue
                places = (f"methods[{index}]", f"environments[{number}]")
                rows.append(_cell(experiment, environment, method, run, places))
    return rows


def _cell(
    experiment: Experiment, environment: EnvironmentEntry, method: MethodEntry, run: int, places: tuple[str, str]
) -> pb.BenchmarkCase:
    seed = experiment.first_seed + run * experiment.seed_step
    intent = environment.intent or experiment.intent
    spec = session_pb2.SessionSpec(model=method.model, seed=seed)
    set_fields(spec.environment_options, environment.options, field=f"{places[1]}.options")
    try:
        methods.set_method(spec, method.method, {})
    except InvalidArgument as error:
        raise error.rename(lambda field: f"{places[0]}.{field}") from None
    for place, settings in ((places[0], method.settings), (places[1], environment.settings)):
        _set(spec, method.method, settings, place)
    _limit(spec, experiment.budget, method=method.method)
    return pb.BenchmarkCase(
        session_id=f"{experiment.name}-{_identity(experiment, environment, method, seed=seed, intent=intent)}",
        intent=intent,
        environment=environment_name(environment.id),
        environment_label=environment.name,
        method=method.name,
        run=run,
        spec=spec,
        score_range=environment.score_range or (),
    )


def _set(spec: session_pb2.SessionSpec, method: str, settings: Mapping[str, Setting], place: str) -> None:
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
    content: dict[str, Any] = {
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
    return _digest(content)


def _limit(spec: session_pb2.SessionSpec, limits: Limits, *, method: str) -> None:
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
