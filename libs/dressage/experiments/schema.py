"""The file of an experiment: its fields, their limits, and errors that name the path of a field.

The settings of a method are checked against the message of the method, as `dressage run --set` does.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from dressage.errors import InvalidArgument

Setting = bool | int | float | str | list[bool | int | float | str]

DEFAULT_INTENT = "reach the highest return of the environment"
_TEXTS = {
    "Input should be ": "",
    "String should ": "a text that should ",
    "List should ": "a list that should ",
}
"""Beginnings of pydantic's messages, as texts after "expected"."""
_SETTING = "a text, a number, true or false, or a list of these"
REMEDY = "docs/experiments.md lists the fields."


class _Entry(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class EnvironmentEntry(_Entry):
    """An environment of an experiment; an id alone stands for an entry with that id."""

    id: str = Field(
        pattern=r"^([A-Za-z0-9][A-Za-z0-9_.-]{0,59}/)?[A-Za-z0-9][A-Za-z0-9_.:-]{0,99}$",
        description="Id, such as CartPole-v1.",
    )
    name: str = Field(
        "",
        pattern=r"^([A-Za-z0-9][A-Za-z0-9_./+-]{0,79})?$",
        description="Name in the results; empty: the id. An environment with several intents needs names.",
    )
    intent: str = Field("", max_length=8000, description="Behaviour; empty: that of the experiment.")
    options: dict[str, bool | int | float] = Field({}, description="Options, such as max_episode_steps.")
    settings: dict[str, Setting] = Field({}, description="Settings of all methods in this environment.")
    runs: int | None = Field(
        None, ge=1, le=1000, description="Runs in this environment; none: those of the experiment."
    )
    score_range: tuple[float, float] | None = Field(
        None, description="Returns that count as 0 and 1 where scores of several environments are combined."
    )

    @property
    def label(self) -> str:
        """Name in the results."""
        return self.name or self.id

    @model_validator(mode="after")
    def _increasing(self) -> EnvironmentEntry:
        if self.score_range is not None and self.score_range[0] >= self.score_range[1]:
            raise ValueError("score_range: expected a lower and a higher number")
        return self


class MethodEntry(_Entry):
    """A method with its settings, under a name for tables."""

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.+-]{0,39}$", description="Name in the results.")
    method: str = Field("parameters", description="Method, as `dressage run --method`.")
    settings: dict[str, Setting] = Field({}, description="Settings, as `dressage run --set`.")
    model: str = Field("", max_length=200, description="Language model; empty: the server's default.")
    environments: list[str] = Field([], description="Names of the environments; empty: all of the experiment.")


class Limits(_Entry):
    """Limits of each session. They are not part of a cell's identity: larger ones extend sessions that have ended."""

    iterations: int | None = Field(None, ge=1, le=1000, description="Maximum number of iterations.")
    dollars: float | None = Field(None, ge=0, description="Cost of model calls.")
    tokens: int | None = Field(None, ge=1, description="Tokens of model calls.")
    env_steps: int | None = Field(None, ge=1, description="Environment steps.")
    minutes: float | None = Field(None, gt=0, description="Wall-clock time.")
    episodes: int | None = Field(None, ge=1, le=10**9, description="Episodes of a search: the setting episode_budget.")
    programs: int | None = Field(None, ge=1, le=10**12, description="Programs of a search: the setting budget.")


def _entries(value: Any) -> Any:
    return [{"id": each} if isinstance(each, str) else each for each in value] if isinstance(value, list) else value


class Experiment(_Entry):
    """Environments × methods × runs; each cell is one session."""

    name: str = Field(pattern=r"^[a-z]([a-z0-9-]{0,38}[a-z0-9])?$", description="Name, the beginning of session ids.")
    description: str = Field("", description="Text for readers.")
    intent: str = Field(DEFAULT_INTENT, min_length=1, max_length=8000, description="Behaviour of all environments.")
    environments: Annotated[list[EnvironmentEntry], BeforeValidator(_entries)] = Field(min_length=1, max_length=200)
    methods: list[MethodEntry] = Field(min_length=1, max_length=200)
    runs: int = Field(ge=1, le=1000, description="Runs of each method in each environment.")
    first_seed: int = Field(0, ge=0, le=10**9 - 10**6, description="Seed of the first run.")
    seed_step: int = Field(1, ge=1, le=1000, description="What the seed of each run adds to that of the run before.")
    budget: Limits = Field(Limits(), description="Limits of each session.")

    def runs_of(self, environment: EnvironmentEntry) -> int:
        """Return the number of runs of each method in an environment."""
        return self.runs if environment.runs is None else environment.runs

    @model_validator(mode="after")
    def _distinct(self) -> Experiment:
        for field, names in (
            ("environments", [entry.label for entry in self.environments]),
            ("methods", [entry.name for entry in self.methods]),
        ):
            twice = sorted({name for name in names if names.count(name) > 1})
            if twice:
                raise ValueError(f"{field}: {twice[0]!r} is given more than once")
        labels = {entry.label for entry in self.environments}
        for index, method in enumerate(self.methods):
            if other := [each for each in method.environments if each not in labels]:
                raise ValueError(f"methods[{index}].environments: {other[0]!r} is not in environments")
        return self


def first_problem(file: str, error: ValidationError) -> InvalidArgument:
    """Return the first problem as an error of the form `file: field: problem (got value); expected what`."""
    problem = error.errors(include_url=False)[0]
    field = _path(problem["loc"])
    kind = problem["type"]
    if kind == "value_error":  # of the validators above, whose text names the field
        return InvalidArgument(
            f"{file}: {f'{field}.' if field else ''}{problem['ctx']['error']}. {REMEDY}", field=field
        )
    name = f"{file}: {field}"
    if kind == "missing":
        return InvalidArgument(field=name, problem="missing", expected="a value", remedy=REMEDY)
    if kind == "extra_forbidden":
        return InvalidArgument(field=name, problem="unknown field", value=problem["input"], remedy=REMEDY)
    if "settings" in problem["loc"]:  # the union has a problem for each of its types
        return InvalidArgument(field=name, value=problem["input"], expected=_SETTING, remedy=REMEDY)
    expected = problem["msg"]
    for begin, instead in _TEXTS.items():
        expected = expected.replace(begin, instead)
    return InvalidArgument(field=name, value=problem["input"], expected=expected, remedy=REMEDY)


def _path(location: tuple[int | str, ...]) -> str:
    """Return `methods[0].settings` for its parts; names of types that pydantic adds for unions are left out."""
    text = ""
    for part in location:
        if isinstance(part, int):
            text += f"[{part}]"
        elif part not in ("bool", "int", "float", "str") and not part.startswith("list["):
            text += f".{part}" if text else part
    return text
