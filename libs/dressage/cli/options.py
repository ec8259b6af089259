"""Options of the commands: each is declared once here, and commands that share several take them as a group.

A group is a dataclass whose fields are options. `grouped` shows them to typer one by one and gives the command the filled
dataclass. This module imports nothing heavy, because `dressage --help` imports it.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_type_hints

import typer

from dressage.cli.counts import parse_count
from dressage.places import FOLDERS
from dressage.places import data_dir as folder_in_use

if TYPE_CHECKING:
    from dressage.local.connection import ServerOptions

ENVIRONMENTS = "DRESSAGE_ENVIRONMENTS"
"""Variable with the folder of custom environments; processes that a command starts inherit it."""


def _with_environments(folder: Path | None) -> Path | None:
    """Use the custom environments and packs of the data folder, unless the variables name other folders."""
    for variable, name in FOLDERS.items():
        if not os.environ.get(variable):
            os.environ[variable] = str(folder_in_use(folder) / name)
    return folder


# Names: sessions, benchmarks, environments, models.
Intent = Annotated[str, typer.Argument(metavar="INTENT", help="The behaviour, in words.")]
SessionName = Annotated[
    str, typer.Argument(metavar="SESSION", help="Id of a session, sessions/ID, or @latest for the newest.")
]
BenchmarkName = Annotated[str, typer.Argument(metavar="BENCHMARK", help="Id of a benchmark, or benchmarks/ID.")]
Bundle = Annotated[str, typer.Argument(metavar="BUNDLE", help="Folder of a policy bundle, or a session.")]
RewardFile = Annotated[Path, typer.Argument(metavar="REWARD.py", help="File with a reward function.")]
Environment = Annotated[
    str, typer.Option("--env", metavar="ID", help="Environment, such as Hopper-v5; see `dressage envs list`.")
]
Model = Annotated[
    str,
    typer.Option("--model", metavar="NAME", help="Language model as litellm names it, or template/v1 for none."),
]
Models = Annotated[
    list[str] | None,
    typer.Option(
        "--model",
        metavar="[ROLE=]NAME",
        help="Language model as litellm names it, or template/v1 for none; with ROLE for one role (judge, video, review, …).",
    ),
]
Thinking = Annotated[
    list[str] | None,
    typer.Option(
        "--thinking",
        metavar="[ROLE=]EFFORT",
        help="Reasoning effort: off, minimal, low, medium, high, xhigh or max, up to what the model offers.",
    ),
]
ProviderWait = Annotated[
    float | None,
    typer.Option(
        "--provider-wait",
        metavar="MINUTES",
        min=0.0,
        max=10_080.0,
        help="How long to wait for a model provider that is down, within the budget [10].",
    ),
]
ApiBases = Annotated[
    list[str] | None,
    typer.Option(
        "--api-base",
        metavar="[ROLE=]URL",
        help="API endpoint of the language model's provider; with ROLE for one role.",
    ),
]
ApiBase = Annotated[
    str | None, typer.Option("--api-base", metavar="URL", help="API endpoint of the language model's provider.")
]

# Training.
EnvironmentOptions = Annotated[
    list[str] | None,
    typer.Option(
        "--env-option",
        metavar="NAME=VALUE",
        help="Option of the environment: max_episode_steps, terminate_when_unhealthy or reset_noise_scale; repeatable.",
    ),
]
VideoOptions = Annotated[
    list[str] | None,
    typer.Option(
        "--video-option",
        metavar="NAME=VALUE",
        help="What the vision model is shown: fps, window_seconds, votes, motion_trail or camera; repeatable.",
    ),
]
Seeds = Annotated[
    int | None, typer.Option("--seeds", metavar="N", min=1, max=100, help="Number of seeds for each config [3].")
]
Seed = Annotated[int, typer.Option("--seed", metavar="N", min=0, max=10**9, help="First training seed.")]
Steps = Annotated[
    int | None,
    typer.Option(
        "--steps",
        parser=parse_count,
        metavar="N",
        help="Environment steps for each seed, such as 600k: at most, where a training's progress decides [4 × preset].",
    ),
]
Configs = Annotated[
    list[str] | None,
    typer.Option("--config", metavar="ID:NAME=VALUE,…", help="Further hyperparameters to train with; repeatable."),
]
Backend = Annotated[
    str,
    typer.Option("--backend", metavar="NAME", help="jax: stacked members; sb3: Stable-Baselines3, if installed [jax]."),
]
Algorithm = Annotated[str, typer.Option("--algorithm", metavar="NAME", help="ppo or sac [ppo].")]
Pool = Annotated[
    str, typer.Option("--pool", metavar="NAME", help="Pool of trainers: gpu, or one of the cluster's [its default].")
]

# Sessions.
Method = Annotated[
    str,
    typer.Option("--method", metavar="NAME", help="Method that proposes and scores policies; see --set [reward]."),
]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="FIELD=VALUE", help="Setting of the method; repeatable, also for lists."),
]
Target = Annotated[
    float | None,
    typer.Option(
        "--target",
        metavar="X",
        help="Mean return from which a search method succeeds [that of the environment's card].",
    ),
]
Iterations = Annotated[
    int | None,
    typer.Option("--iterations", metavar="N", min=1, max=1000, help="Maximum number of iterations [5]."),
]
Threshold = Annotated[
    float | None,
    typer.Option("--threshold", metavar="X", min=0.001, max=1.0, help="Score from which a session succeeds [0.7]."),
]
Variants = Annotated[
    bool,
    typer.Option("--variants/--no-variants", help="Also train with a conservative and an aggressive config."),
]
Tune = Annotated[
    bool | None,
    typer.Option(
        "--tune/--no-tune",
        help="Let the author change hyperparameters, networks and steps between iterations [on with a language model].",
        show_default=False,
    ),
]
Video = Annotated[
    str,
    typer.Option(
        "--video",
        metavar="deciding|all|none|only",
        show_default=False,
        help="Rollouts that a vision model judges [deciding]; only: as deciding, without a code judge.",
    ),
]
EarlyStop = Annotated[
    bool | None,
    typer.Option(
        "--early-stop/--no-early-stop",
        help="End a training once it passes or no longer improves; continue while it improves [unless configs are compared].",
        show_default=False,
    ),
]
Patience = Annotated[
    int | None,
    typer.Option(
        "--patience",
        metavar="N",
        min=1,
        max=100,
        help="Checkpoints in a row without a rise after which a training ends that has its expected steps [2].",
    ),
]
FromParent = Annotated[
    str,
    typer.Option(
        "--from-parent",
        metavar="auto|never|always",
        show_default=False,
        help="Whether an iteration continues from its parent's policies [auto: the author decides].",
    ),
]
Checkpoint = Annotated[
    str,
    typer.Option(
        "--checkpoint", metavar="last|best", help="Checkpoint of each seed that is judged and delivered [last]."
    ),
]
BudgetDollars = Annotated[
    float | None,
    typer.Option("--budget-dollars", metavar="X", min=0.0, help="Limit for the cost of model calls, in dollars."),
]
BudgetTokens = Annotated[
    int | None,
    typer.Option("--budget-tokens", parser=parse_count, metavar="N", help="Limit for the tokens of model calls."),
]
BudgetSteps = Annotated[
    int | None,
    typer.Option(
        "--budget-steps", parser=parse_count, metavar="N", help="Limit for the environment steps of all iterations."
    ),
]
BudgetMinutes = Annotated[
    float | None,
    typer.Option("--budget-minutes", metavar="X", min=0.01, help="Limit for the wall-clock time, in minutes."),
]
Yes = Annotated[
    bool, typer.Option("--yes", "-y", help="Do not ask before a session that costs money or may take an hour.")
]
Detach = Annotated[bool, typer.Option("--detach", help="Return when the session has started; needs a running server.")]

Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress, only the result.")]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Show a line for each event, also in a terminal.")]
FailBelow = Annotated[
    float | None,
    typer.Option("--fail-below", metavar="X", help="Exit with status 3 if the final score is below X, or missing."),
]

# Output and server.
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document instead of text.")]
DataDir = Annotated[
    Path | None,
    typer.Option(
        "--data-dir",
        metavar="DIR",
        envvar="DRESSAGE_HOME",
        help="Data folder of this machine.",
        callback=_with_environments,
    ),
]
Address = Annotated[
    str | None,
    typer.Option(
        "--address", metavar="HOST:PORT", envvar="DRESSAGE_ADDRESS", help="Server to use [one on this machine]."
    ),
]
Token = Annotated[
    str | None,
    typer.Option("--token", metavar="TOKEN", envvar="DRESSAGE_TOKEN", help="Bearer token of the server."),
]
CaFile = Annotated[
    Path | None,
    typer.Option(
        "--ca-file",
        metavar="FILE",
        envvar="DRESSAGE_CA_FILE",
        help="CA certificates (PEM) that verify the server; TLS [the system's, for https://].",
    ),
]
Insecure = Annotated[
    bool,
    typer.Option(
        "--insecure", envvar="DRESSAGE_INSECURE", help="Send the token to another machine without encryption."
    ),
]
TlsCert = Annotated[
    Path | None,
    typer.Option("--tls-cert", metavar="FILE", envvar="DRESSAGE_TLS_CERT", help="Certificate chain (PEM): serve TLS."),
]
TlsKey = Annotated[
    Path | None,
    typer.Option("--tls-key", metavar="FILE", envvar="DRESSAGE_TLS_KEY", help="Private key (PEM) of the certificate."),
]


@dataclass(frozen=True)
class CommonOptions:
    """Output and server, as most commands take them."""

    as_json: Json = False
    data_dir: DataDir = None
    address: Address = None
    token: Token = None
    ca_file: CaFile = None
    insecure: Insecure = False

    def server(self, *, api_base: str | list[str] | None = None, recordings: Path | None = None) -> ServerOptions:
        """Return the options of the connection; imports gRPC."""
        from dressage.client import Trust
        from dressage.local.connection import ServerOptions
        from dressage.sdk.role_options import by_role

        bases = by_role("--api-base", api_base or ())
        general = bases.pop("", None)
        return ServerOptions(
            self.address,
            self.token,
            self.data_dir,
            general,
            recordings,
            tuple(bases.values()),
            trust=Trust(self.ca_file, insecure=self.insecure),
        )


@dataclass(frozen=True)
class ViewOptions:
    """What a command that follows a session shows, and how its exit status depends on the score."""

    quiet: Quiet = False
    verbose: Verbose = False
    fail_below: FailBelow = None

    @property
    def detail(self) -> Literal["quiet", "normal", "verbose"]:
        """How much is shown."""
        return "quiet" if self.quiet else "verbose" if self.verbose else "normal"


@dataclass(frozen=True)
class TrainOptions:
    """Options of one training; the names are those of `SpecOptions`."""

    environment_options: EnvironmentOptions = None
    seeds: Seeds = None
    seed: Seed = 0
    steps: Steps = None
    configs: Configs = None
    backend: Backend = ""
    algorithm: Algorithm = ""
    pool: Pool = ""


@dataclass(frozen=True)
class RunOptions:
    """Options of a session; the names are those of `SpecOptions`."""

    environment: Environment = ""
    environment_options: EnvironmentOptions = None
    model: Models = None
    thinking: Thinking = None
    api_base: ApiBases = None
    provider_wait: ProviderWait = None
    method: Method = ""
    target: Target = None
    settings: Settings = None
    iterations: Iterations = None
    threshold: Threshold = None
    seeds: Seeds = None
    seed: Seed = 0
    steps: Steps = None
    configs: Configs = None
    variants: Variants = False
    tune: Tune = None
    early_stop: EarlyStop = None
    patience: Patience = None
    from_parent: FromParent = ""
    checkpoint: Checkpoint = ""
    backend: Backend = ""
    algorithm: Algorithm = ""
    pool: Pool = ""
    reward: Annotated[
        Path | None, typer.Option("--reward", metavar="FILE", help="First reward [a model writes it].")
    ] = None
    judge: Annotated[Path | None, typer.Option("--judge", metavar="FILE", help="Judge [a model writes it].")] = None
    criteria: Annotated[
        Path | None,
        typer.Option("--criteria", metavar="FILE", help="Criteria, as `dressage elicit --out` writes them."),
    ] = None
    video: Video = ""
    video_options: VideoOptions = None
    approve: Annotated[
        bool,
        typer.Option("--approve/--no-approve", help="Wait for `dressage sessions approve` before each evaluation."),
    ] = False
    budget_dollars: BudgetDollars = None
    budget_tokens: BudgetTokens = None
    budget_steps: BudgetSteps = None
    budget_minutes: BudgetMinutes = None


@dataclass(frozen=True)
class CaseOptions:
    """Options of each session of a benchmark."""

    environment_options: EnvironmentOptions = None
    model: Models = None
    thinking: Thinking = None
    api_base: ApiBases = None
    provider_wait: ProviderWait = None
    method: Method = ""
    target: Target = None
    settings: Settings = None
    iterations: Iterations = None
    threshold: Threshold = None
    seeds: Seeds = None
    seed: Seed = 0
    steps: Steps = None
    configs: Configs = None
    variants: Variants = False
    tune: Tune = None
    video: Video = ""
    video_options: VideoOptions = None
    early_stop: EarlyStop = None
    patience: Patience = None
    from_parent: FromParent = ""
    checkpoint: Checkpoint = ""
    budget_dollars: BudgetDollars = None
    budget_tokens: BudgetTokens = None
    budget_steps: BudgetSteps = None
    budget_minutes: BudgetMinutes = None


def given(group: TrainOptions | RunOptions | CaseOptions) -> dict[str, Any]:
    """Return the options of a group that have a value."""
    return {name: value for name, value in vars(group).items() if value is not None}


def changed(group: TrainOptions | RunOptions | CaseOptions) -> set[str]:
    """Return the names of the options of a group that do not have their defaults."""
    return {field.name for field in fields(group) if getattr(group, field.name) != field.default}


LATEST = "@latest"


def _newest(value: Any, common: CommonOptions) -> Any:
    """Return the id of the newest session in place of `@latest`, also before a slash; other values as they are."""
    if isinstance(value, list):
        return [_newest(entry, common) for entry in value]
    if not isinstance(value, str) or not (value == LATEST or value.startswith(f"{LATEST}/")):
        return value
    from dressage.local.connection import Connection, execute

    async def newest(connection: Connection) -> str:
        async for session in connection.client.list_sessions(page_size=1):
            return str(session.name).rpartition("/")[2]
        raise typer.BadParameter("there is no session yet", param_hint=LATEST)

    return execute(common.server(), newest) + value.removeprefix(LATEST)


def grouped(command: Callable[..., None]) -> Callable[..., None]:
    """Return the command with each parameter that is a dataclass replaced by its fields, as options for typer.

    `CommonOptions` come last in the help.
    """
    hints = get_type_hints(command, include_extras=True)
    groups: dict[str, Any] = {name: kind for name, kind in hints.items() if is_dataclass(kind)}
    parameters: list[inspect.Parameter] = []
    for parameter in inspect.signature(command).parameters.values():
        if parameter.name not in groups:
            parameters.append(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY, annotation=hints[parameter.name]))
            continue
        group = groups[parameter.name]
        annotations = get_type_hints(group, include_extras=True)
        parameters += [
            inspect.Parameter(
                field.name,
                inspect.Parameter.KEYWORD_ONLY,
                default=field.default,
                annotation=annotations[field.name],
            )
            for field in fields(group)
        ]

    last = {field.name for field in fields(CommonOptions)}
    parameters.sort(key=lambda parameter: parameter.name in last)

    def flat(**values: Any) -> None:
        common = CommonOptions(**{name: values[name] for name in last if name in values})
        values = {name: _newest(value, common) for name, value in values.items()}
        filled = {
            name: group(**{field.name: values.pop(field.name) for field in fields(group)})
            for name, group in groups.items()
        }
        command(**values, **filled)

    flat.__name__, flat.__doc__, flat.__module__ = command.__name__, command.__doc__, command.__module__
    flat.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    flat.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return flat
