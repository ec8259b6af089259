"""The commands at the top level: their options here, their work in modules that are imported when they run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dressage.cli.options import Address, DataDir, Json, Token, parse_count

EnvId = Annotated[str, typer.Option("--env", metavar="ID", help="Environment; `dressage envs list` shows them.")]
Seeds = Annotated[int | None, typer.Option(metavar="N", min=1, max=100, help="Seeds for each config [3].")]
Seed = Annotated[int, typer.Option(metavar="N", min=0, max=10**9, help="First training seed.")]
Steps = Annotated[
    int | None,
    typer.Option(parser=parse_count, metavar="N", help="Environment steps for each seed, e.g. 600k [preset]."),
]
Configs = Annotated[
    list[str] | None,
    typer.Option("--config", metavar="ID:NAME=VALUE,…", help="Hyperparameters to try beside others; repeatable."),
]
Backend = Annotated[
    str, typer.Option(metavar="NAME", help="jax: stacked PPO; sb3: Stable-Baselines3, where it is installed [jax].")
]
Algorithm = Annotated[str, typer.Option(metavar="NAME", help="ppo, or sac (backend sb3) [ppo].")]
Pool = Annotated[
    str, typer.Option(metavar="NAME", help="Pool of trainers, on a cluster that has several [its default].")
]
EnvOption = Annotated[
    list[str] | None,
    typer.Option(
        "--env-option",
        metavar="NAME=VALUE",
        help="max_episode_steps, terminate_when_unhealthy or reset_noise_scale of the environment; repeatable.",
    ),
]
Method = Annotated[
    str,
    typer.Option(metavar="NAME", help="How policies are found; another one's settings are given by --set [reward]."),
]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="FIELD=VALUE", help="A setting of the method; repeatable, also for lists."),
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask before model calls that cost money.")]
Detach = Annotated[bool, typer.Option("--detach", help="Leave once the session has begun (needs a running server).")]


def run(
    intent: Annotated[str, typer.Argument(metavar="INTENT", help="The behaviour, in words; not with --replay.")] = "",
    env: Annotated[
        str, typer.Option(metavar="ID", help="Environment, such as HalfCheetah-v5; not with --replay.")
    ] = "",
    env_option: EnvOption = None,
    model: Annotated[
        str, typer.Option(metavar="NAME", help="Language model as litellm names it; template/v1: none.")
    ] = "",
    api_base: Annotated[str | None, typer.Option(metavar="URL", help="Endpoint of the model's provider.")] = None,
    method: Method = "",
    set_: Set = None,
    seeds: Seeds = None,
    seed: Seed = 0,
    steps: Steps = None,
    iterations: Annotated[
        int | None, typer.Option(metavar="N", min=1, max=1000, help="Iterations at most [5].")
    ] = None,
    threshold: Annotated[
        float | None, typer.Option(metavar="X", min=0.001, max=1.0, help="Score that counts as achieved [0.7].")
    ] = None,
    config: Configs = None,
    backend: Backend = "",
    algorithm: Algorithm = "",
    pool: Pool = "",
    reward: Annotated[Path | None, typer.Option(metavar="FILE", help="First reward, instead of an author's.")] = None,
    judge: Annotated[Path | None, typer.Option(metavar="FILE", help="Judge, instead of an author's.")] = None,
    criteria: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Criteria as `dressage elicit --out` writes them, edited.")
    ] = None,
    budget_dollars: Annotated[
        float | None, typer.Option(metavar="X", min=0.0, help="Bound on what model calls may cost.")
    ] = None,
    replay: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="A recorded session: its replies again, trained and judged anew."),
    ] = None,
    budget_tokens: Annotated[
        int | None, typer.Option(parser=parse_count, metavar="N", help="Bound on the tokens of model calls.")
    ] = None,
    budget_steps: Annotated[
        int | None, typer.Option(parser=parse_count, metavar="N", help="Bound on environment steps of all iterations.")
    ] = None,
    budget_minutes: Annotated[
        float | None, typer.Option(metavar="X", min=0.01, help="Bound on the wall-clock time.")
    ] = None,
    variants: Annotated[
        bool, typer.Option(help="Try a conservative and an aggressive config beside the base.")
    ] = False,
    tune: Annotated[
        bool, typer.Option(help="Let a model change hyperparameters; an iteration inherits its parent's winner's.")
    ] = False,
    approve: Annotated[bool, typer.Option(help="Wait for `dressage sessions approve` before each evaluation.")] = False,
    video: Annotated[
        str, typer.Option(metavar="deciding|none|all", help="Rollouts that a model with eyes looks at.")
    ] = "deciding",
    yes: Yes = False,
    detach: Detach = False,
    as_json: Json = False,
    data_dir: DataDir = None,
    address: Address = None,
    token: Token = None,
) -> None:
    """Train a policy for a behaviour described in words."""
    from dressage.cli import run as work
    from dressage.local.connection import ServerOptions as Where
    from dressage.sdk.specs import SpecOptions, make_spec, recorded

    if replay is None:
        for name, given in (("argument 'INTENT'", intent), ("option '--env'", env)):
            if not given:
                raise typer.BadParameter(f"Missing {name} (or --replay with a recorded session).")
    recording = None if replay is None else recorded(replay, intent=intent, environment=env, model=model, method=method)
    spec = make_spec(
        SpecOptions(
            intent=intent,
            environment=env,
            environment_options=env_option or (),
            model=model,
            seeds=seeds or 0,
            seed=seed,
            steps=steps or 0,
            iterations=iterations or 0,
            threshold=threshold or 0.0,
            configs=config or (),
            backend=backend,
            algorithm=algorithm,
            pool=pool,
            reward=reward,
            judge=judge,
            criteria=criteria,
            budget_dollars=budget_dollars,
            budget_tokens=budget_tokens or 0,
            budget_steps=budget_steps or 0,
            budget_minutes=budget_minutes,
            variants=variants,
            tune=tune,
            approve=approve,
            video=video,
            method=method,
            settings=set_ or (),
        ),
        recording,
    )
    where = Where(address, token, data_dir, api_base, None if replay is None else replay.absolute().parent)
    raise typer.Exit(work.run(spec, where, work.Manner(yes=yes, detach=detach, as_json=as_json)))


def elicit(
    intent: Annotated[str, typer.Argument(metavar="INTENT", help="The behaviour, in words.")],
    env: EnvId,
    model: Annotated[
        str, typer.Option(metavar="NAME", help="Language model as litellm names it; template/v1: none.")
    ] = "",
    api_base: Annotated[str | None, typer.Option(metavar="URL", help="Endpoint of the model's provider.")] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="FILE", help="Write them, to be edited: .json or .yaml.")
    ] = None,
    as_json: Json = False,
    data_dir: DataDir = None,
    address: Address = None,
    token: Token = None,
) -> None:
    """Propose measurable criteria for a behaviour, and say what it leaves open."""
    from dressage.cli import criteria
    from dressage.local.connection import ServerOptions as Where

    criteria.elicit(intent, env, Where(address, token, data_dir, api_base), model=model, out=out, as_json=as_json)


def train(
    reward: Annotated[
        Path, typer.Argument(metavar="REWARD.py", help="A reward; functions and RewardFunction classes.")
    ],
    env: EnvId,
    env_option: EnvOption = None,
    seeds: Seeds = None,
    seed: Seed = 0,
    steps: Steps = None,
    config: Configs = None,
    backend: Backend = "",
    algorithm: Algorithm = "",
    pool: Pool = "",
    detach: Detach = False,
    as_json: Json = False,
    data_dir: DataDir = None,
    address: Address = None,
    token: Token = None,
) -> None:
    """Train on a reward file: no author, no judge, one training."""
    from dressage.cli import run as work
    from dressage.local.connection import ServerOptions as Where
    from dressage.sdk.specs import SpecOptions, make_spec

    spec = make_spec(
        SpecOptions(
            intent=f"train on {reward.name}",
            environment=env,
            environment_options=env_option or (),
            seeds=seeds or 0,
            seed=seed,
            steps=steps or 0,
            iterations=1,
            configs=config or (),
            backend=backend,
            algorithm=algorithm,
            pool=pool,
            reward=reward,
            train_only=True,
        )
    )
    where = Where(address, token, data_dir)
    raise typer.Exit(work.run(spec, where, work.Manner(yes=True, detach=detach, as_json=as_json)))


def bench(
    cases: Annotated[
        Path | None, typer.Argument(metavar="CASES.csv", help="Columns env_id, instruction, category, difficulty.")
    ] = None,
    staged: Annotated[
        bool, typer.Option("--staged/--flat", help="Stage by stage, each gated by the mean score so far.")
    ] = True,
    gate: Annotated[float, typer.Option(min=0.0, max=1.0, help="Mean score that lets the next stage begin.")] = 0.7,
    model: Annotated[
        str, typer.Option(metavar="NAME", help="Language model as litellm names it; template/v1: none.")
    ] = "",
    api_base: Annotated[str | None, typer.Option(metavar="URL", help="Endpoint of the model's provider.")] = None,
    seeds: Seeds = None,
    seed: Seed = 0,
    steps: Steps = None,
    iterations: Annotated[
        int | None, typer.Option(metavar="N", min=1, max=1000, help="Iterations at most [5].")
    ] = None,
    threshold: Annotated[
        float | None, typer.Option(metavar="X", min=0.001, max=1.0, help="Score that counts as achieved [0.7].")
    ] = None,
    variants: Annotated[
        bool, typer.Option(help="Try a conservative and an aggressive config beside the base.")
    ] = False,
    tune: Annotated[bool, typer.Option(help="Let hyperparameters change between iterations.")] = False,
    budget_dollars: Annotated[float | None, typer.Option(metavar="X", min=0.0, help="Bound for each case.")] = None,
    budget_tokens: Annotated[
        int | None, typer.Option(parser=parse_count, metavar="N", help="Bound for each case.")
    ] = None,
    resume: Annotated[str, typer.Option(metavar="BENCHMARK", help="Go on with this one instead.")] = "",
    out: Annotated[Path, typer.Option("--out", "-o", metavar="DIR", help="Folder of the report.")] = Path("benchmark"),
    as_json: Json = False,
    data_dir: DataDir = None,
    address: Address = None,
    token: Token = None,
) -> None:
    """Run a session for each case of a CSV; report success rates, scores, cost and learning curves."""
    from dressage.api.v1 import session_pb2
    from dressage.cli import bench as work
    from dressage.local.connection import ServerOptions as Where

    template = session_pb2.SessionSpec(
        model=model,
        seed=seed,
        max_iterations=iterations or 0,
        pass_threshold=threshold or 0.0,
        reward=session_pb2.RewardSpec(
            seeds=seeds or 0, steps_per_member=steps or 0, config_variants=variants, tune_hyperparameters=tune
        ),
    )
    if budget_dollars is not None:
        template.budget.dollars = budget_dollars
    template.budget.tokens = budget_tokens or 0
    plan = work.Plan(template=template, staged=staged, gate=gate, resume=resume, out=out)
    raise typer.Exit(work.run(cases, Where(address, token, data_dir, api_base), plan, as_json=as_json))


def serve(
    data_dir: DataDir = None,
    address: Annotated[str, typer.Option(metavar="HOST:PORT", help="Where to listen.")] = "127.0.0.1:7400",
    token: Token = None,
    api_base: Annotated[str | None, typer.Option(metavar="URL", help="Endpoint of the model's provider.")] = None,
    metrics: Annotated[str | None, typer.Option(metavar="HOST:PORT", help="Where Prometheus finds metrics.")] = None,
    recordings: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Folder of recorded sessions, for models recorded/NAME.")
    ] = None,
) -> None:
    """Run the whole stack on this machine until Ctrl-C."""
    from dressage import places
    from dressage.cli import serve as work

    work.serve(
        places.data_dir(data_dir),
        address=address,
        token=token,
        api_base=api_base,
        recordings=recordings,
        metrics=metrics,
    )


def check(
    reward: Annotated[Path, typer.Argument(metavar="REWARD.py", help="The reward to check.")],
    env: EnvId,
    allow_unsandboxed: Annotated[
        bool, typer.Option(help="Run the file even if this kernel has no sandbox; only for code that you have read.")
    ] = False,
    as_json: Json = False,
    data_dir: DataDir = None,
) -> None:
    """Check a reward in the sandbox, without training."""
    from dressage.cli import check as work

    raise typer.Exit(work.check(reward, env, allow_unsandboxed=allow_unsandboxed, as_json=as_json))


def evaluate(
    bundle: Annotated[str, typer.Argument(metavar="BUNDLE", help="Folder of a policy bundle, or a session.")],
    episodes: Annotated[int, typer.Option(metavar="N", min=1, max=10_000, help="Episodes to run.")] = 20,
    seed: Annotated[int, typer.Option(metavar="N", min=0, help="Seed of the first episode.")] = 3_000_000,
    as_json: Json = False,
    data_dir: DataDir = None,
    address: Address = None,
    token: Token = None,
) -> None:
    """Evaluate a policy on stock Gymnasium, beside the random policy."""
    from dressage.cli import policies
    from dressage.local.connection import ServerOptions as Where

    policies.evaluate(bundle, Where(address, token, data_dir), episodes=episodes, seed=seed, as_json=as_json)


def render(
    what: Annotated[str, typer.Argument(metavar="SESSION|ROLLOUT.npz", help="A session, or a recorded trajectory.")],
    out: Annotated[Path | None, typer.Option("--out", "-o", metavar="FILE", help="The video to write.")] = None,
    as_json: Json = False,
    data_dir: DataDir = None,
    address: Address = None,
    token: Token = None,
) -> None:
    """Fetch the video of a session's best policy, or draw a recorded trajectory."""
    from dressage.cli import videos
    from dressage.local.connection import ServerOptions as Where

    videos.render(what, Where(address, token, data_dir), out=out, as_json=as_json)


def export(
    bundle: Annotated[str, typer.Argument(metavar="BUNDLE", help="Folder of a policy bundle, or a session.")],
    form: Annotated[str, typer.Option("--format", metavar="sb3|onnx", help="sb3: policy.zip and vecnormalize.pkl.")],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="PATH", help="Folder (sb3) or file (onnx).")
    ] = None,
    as_json: Json = False,
    data_dir: DataDir = None,
    address: Address = None,
    token: Token = None,
) -> None:
    """Export a policy for other programs."""
    if form not in ("sb3", "onnx"):
        raise typer.BadParameter(f"{form!r} is not one of sb3, onnx", param_hint="--format")
    from dressage.cli import policies
    from dressage.local.connection import ServerOptions as Where

    policies.export(bundle, Where(address, token, data_dir), form=form, out=out, as_json=as_json)


def doctor(as_json: Json = False, data_dir: DataDir = None) -> None:
    """Say what is installed, what works here, what is missing and how to get it."""
    from dressage import places
    from dressage.cli import doctor as work

    raise typer.Exit(work.doctor(places.data_dir(data_dir), as_json=as_json))


def register(app: typer.Typer) -> None:
    """Adds the commands to the application, in the order in which help shows them."""
    app.command()(run)
    app.command()(bench)
    app.command()(elicit)
    app.command()(serve)
    app.command()(train)
    app.command()(check)
    app.command("eval")(evaluate)
    app.command()(render)
    app.command()(export)
    app.command()(doctor)
