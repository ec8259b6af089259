"""The commands at the top level: their options are declared here, and the modules that do the work are imported on use."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dressage.cli.options import (
    ApiBase,
    Bundle,
    CaseOptions,
    CommonOptions,
    DataDir,
    Detach,
    Environment,
    Intent,
    Json,
    Model,
    RewardFile,
    RunOptions,
    SessionName,
    TlsCert,
    TlsKey,
    Token,
    TrainOptions,
    ViewOptions,
    Yes,
    expand_groups,
)


@expand_groups
def run(
    options: RunOptions,
    view: ViewOptions,
    common: CommonOptions,
    intent: Annotated[str, typer.Argument(metavar="INTENT", help="The behaviour, in words.")] = "",
    replay: Annotated[
        Path | None,
        typer.Option(
            "--replay",
            metavar="DIR",
            help="Folder of a recorded session: use its intent, environment and model replies; train and judge again.",
        ),
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option(
            "--file", "-f", metavar="SESSION.yaml", help="Spec of the session; other options override what it has."
        ),
    ] = None,
    dump: Annotated[
        bool, typer.Option("--dump", help="Print the spec as a file for --file, and do not run it.")
    ] = False,
    schema: Annotated[bool, typer.Option("--schema", help="Print the JSON Schema of a file for --file.")] = False,
    yes: Yes = False,
    detach: Detach = False,
) -> None:
    """Train a policy for a behaviour described in words."""
    from dressage.cli import output
    from dressage.cli.run import OutputOptions
    from dressage.cli.run import run as run_session
    from dressage.sdk import session_file
    from dressage.sdk.argument_names import option_names
    from dressage.sdk.specs import make_spec, replay_spec

    if schema:
        output.print_json(session_file.schema())
        return
    recording = None if file is None else session_file.read_spec(file, field="--file")
    if file is not None and replay is not None:
        raise typer.BadParameter("--file and --replay exclude each other.", param_hint="--file")
    arguments = options | ({"intent": intent} if intent else {})
    with option_names():
        if replay is not None:
            recording = replay_spec(replay, arguments)
        for name, place in (("intent", "argument 'INTENT'"), ("env", "option '--env'")):
            if recording is None and not arguments.get(name):
                raise typer.BadParameter(f"Missing {place}; only --replay and --file work without it.")
        spec = make_spec(arguments, recording)
    if dump:
        print(session_file.dump(spec), end="")
        return
    recordings = None if replay is None else replay.absolute().parent
    server = common.server(api_base=options.get("api_base"), recordings=recordings)
    output_options = OutputOptions(
        yes=yes, detach=detach, as_json=common.as_json, detail=view.detail, fail_below=view.fail_below
    )
    with option_names(only=None if recording is None else arguments, file=file.name if file else "session.json"):
        code = run_session(spec, server, output_options)
    raise typer.Exit(code)


@expand_groups
def elicit(
    intent: Intent,
    env: Environment,
    common: CommonOptions,
    model: Model = "",
    api_base: ApiBase = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="FILE", help="File for the criteria: .json or .yaml.")
    ] = None,
) -> None:
    """Propose measurable criteria for a behaviour.

    Also prints the questions that the intent leaves open.
    """
    from dressage.cli.criteria import elicit
    from dressage.sdk.argument_names import option_names

    with option_names():
        elicit(intent, env, common.server(api_base=api_base), model=model, out=out, as_json=common.as_json)


@expand_groups
def train(
    reward: RewardFile,
    env: Environment,
    options: TrainOptions,
    view: ViewOptions,
    common: CommonOptions,
    yes: Yes = False,
    detach: Detach = False,
) -> None:
    """Train with a reward file, without model and judge."""
    from dressage.cli.run import OutputOptions, run
    from dressage.sdk.argument_names import option_names
    from dressage.sdk.specs import make_training_spec

    output_options = OutputOptions(yes=yes, detach=detach, as_json=common.as_json, detail=view.detail)
    with option_names(others={"reward": "REWARD.py"}):
        spec = make_training_spec(options | {"env": env, "reward": reward}, reward.name)
        code = run(spec, common.server(), output_options)
    raise typer.Exit(code)


@expand_groups
def bench(
    options: CaseOptions,
    common: CommonOptions,
    file: Annotated[
        Path | None,
        typer.Argument(
            metavar="FILE",
            help="EXPERIMENT.yaml: environments, methods, runs. CASES.csv: columns env_id, instruction, category, "
            "difficulty; or CASES.json.",
        ),
    ] = None,
    staged: Annotated[
        bool, typer.Option("--staged/--flat", help="Run stages in order; each starts if the mean score reaches --gate.")
    ] = True,
    gate: Annotated[
        float, typer.Option(metavar="X", min=0.0, max=1.0, help="Mean score from which the next stage starts.")
    ] = 0.7,
    resume: Annotated[str, typer.Option(metavar="BENCHMARK", help="Follow this benchmark; without FILE.")] = "",
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", metavar="DIR", help="Folder of the results [results/NAME next to the file]."),
    ] = None,
    parallel: Annotated[
        int | None,
        typer.Option("--parallel", metavar="N", min=1, max=64, help="Sessions at a time [the server's setting, 2]."),
    ] = None,
    detach: Detach = False,
) -> None:
    """Run a benchmark: a session for each case of a file, or an experiment of environments, methods and runs.

    The same command continues it after an interruption, and runs what was added to the file. Results go to results.jsonl, which
    `dressage report` compares; cases from CSV and JSON also get a report with success rates, scores, cost and learning curves.
    """
    from dressage.cli import benchmarks

    chosen = benchmarks.BenchOptions(
        staged=staged,
        gate=gate,
        resume=resume,
        out=out,
        parallel=parallel,
        detach=detach,
        as_json=common.as_json,
    )
    server = common.server(api_base=options.get("api_base"))
    raise typer.Exit(benchmarks.bench(file, server, options, chosen))


@expand_groups
def report(
    sources: Annotated[
        list[str],
        typer.Argument(metavar="FOLDER…|SESSION", help="Folders of results of experiments; or a session, with --html."),
    ],
    common: CommonOptions,
    html: Annotated[
        bool,
        typer.Option("--html", help="Write one self-contained page about a session: scores, curves, videos, code."),
    ] = False,
    metric: Annotated[
        str,
        typer.Option(
            metavar="score|best|mean_winner",
            help="Metric of tests and aggregates: score on report seeds, best or mean score on search seeds.",
        ),
    ] = "score",
    reference: Annotated[
        str, typer.Option(metavar="METHOD", help="Method that tests compare with all others [the first].")
    ] = "",
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", metavar="PATH", help="Folder of the report [the first FOLDER], or file [SESSION.html]."
        ),
    ] = None,
) -> None:
    """Compare the methods of experiments, or write a page about a session.

    For experiments: means, intervals, tests, aggregates and learning curves as Markdown, CSV and pictures.
    """
    from dressage.cli import experiment_report, session_report

    if html:
        if len(sources) != 1:
            raise typer.BadParameter("--html takes one session", param_hint="SESSION")
        raise typer.Exit(session_report.write(sources[0], common.server(), out=out, as_json=common.as_json))
    raise typer.Exit(
        experiment_report.write(
            [Path(source) for source in sources],
            metric=metric,
            reference=reference,
            out=out,
            as_json=common.as_json,
        )
    )


def serve(
    data_dir: DataDir = None,
    address: Annotated[str, typer.Option(metavar="HOST:PORT", help="Address to listen on.")] = "127.0.0.1:7400",
    token: Token = None,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    api_base: ApiBase = None,
    metrics: Annotated[str | None, typer.Option(metavar="HOST:PORT", help="Address of the Prometheus metrics.")] = None,
    recordings: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Folder of recorded sessions, for models recorded/NAME.")
    ] = None,
    console: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT", help="Address of the console for browsers, or off. Default: the port after the API's."
        ),
    ] = None,
    open_browser: Annotated[bool, typer.Option("--open", help="Open the console in a browser.")] = False,
) -> None:
    """Run all services on this machine until Ctrl-C."""
    from dressage.cli.serve import serve
    from dressage.places import data_dir as folder_in_use

    serve(
        folder_in_use(data_dir),
        address=address,
        token=token,
        tls_cert=tls_cert,
        tls_key=tls_key,
        api_base=api_base,
        recordings=recordings,
        metrics=metrics,
        console=console,
        open_browser=open_browser,
    )


def check(
    reward: RewardFile,
    env: Environment,
    allow_unsandboxed: Annotated[
        bool,
        typer.Option(
            "--allow-unsandboxed", help="Run the file even if this kernel has no sandbox; only for code you have read."
        ),
    ] = False,
    traceable: Annotated[
        bool,
        typer.Option("--traceable", help="Also examine whether a reward can be compiled for a pool of devices."),
    ] = False,
    as_json: Json = False,
    data_dir: DataDir = None,
) -> None:
    """Check a reward, or a code policy, in the sandbox, without training."""
    from dressage.cli import policies

    raise typer.Exit(
        policies.check(reward, env, allow_unsandboxed=allow_unsandboxed, traceable=traceable, as_json=as_json)
    )


@expand_groups
def evaluate(
    bundle: Bundle,
    common: CommonOptions,
    episodes: Annotated[int, typer.Option(metavar="N", min=1, max=10_000, help="Number of episodes.")] = 20,
    seed: Annotated[int, typer.Option(metavar="N", min=0, help="Seed of the first episode.")] = 3_000_000,
) -> None:
    """Evaluate a policy on stock Gymnasium.

    The output compares it with random actions on the same seeds.
    """
    from dressage.cli import policies

    policies.evaluate(bundle, common.server(), episodes=episodes, seed=seed, as_json=common.as_json)


@expand_groups
def render(
    source: Annotated[
        str,
        typer.Argument(
            metavar="SESSION|BUNDLE|ROLLOUT.npz", help="A session, a bundle, or a rollout: its file, or its key."
        ),
    ],
    common: CommonOptions,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", metavar="FILE", help="The video: .mp4; of a program also .gif or .png."),
    ] = None,
) -> None:
    """Write the video of a session, of an episode of a policy, or of a recorded rollout.

    A program is drawn next to its grid with the executing line; a .png shows the end of the episode.
    """
    from dressage.cli import videos

    videos.render(source, common.server(), out=out, as_json=common.as_json)


@expand_groups
def export(
    bundle: Bundle,
    form: Annotated[
        str,
        typer.Option(
            "--format",
            metavar="sb3|onnx|python",
            help="sb3: policy.zip and vecnormalize.pkl; onnx: one file; python: one file, for code policies and programs.",
        ),
    ],
    common: CommonOptions,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="PATH", help="Folder (sb3) or file (onnx, python).")
    ] = None,
) -> None:
    """Export a policy to Stable-Baselines3 or ONNX; a code policy to a Python file."""
    if form not in ("sb3", "onnx", "python"):
        raise typer.BadParameter(f"{form!r} is not one of sb3, onnx, python", param_hint="--format")
    from dressage.cli import policies

    policies.export(bundle, common.server(), form=form, out=out, as_json=common.as_json)


def doctor(as_json: Json = False, data_dir: DataDir = None) -> None:
    """Check the installation.

    Lists what is installed, what works, what is missing and how to get it.
    """
    from dressage.cli.doctor import doctor
    from dressage.places import data_dir as folder_in_use

    raise typer.Exit(doctor(folder_in_use(data_dir), as_json=as_json))


@expand_groups
def record(
    session: SessionName,
    common: CommonOptions,
    out: Annotated[
        Path,
        typer.Option("--out", "-o", metavar="DIR", help="New folder; its name is the recording's.", show_default=False),
    ],
) -> None:
    """Write a session's settings and model replies, for `dressage run --replay`."""
    from dressage.cli import output
    from dressage.client.names import session_name
    from dressage.local.connection import Connection, execute
    from dressage.sdk.recording import record as record_session

    async def work(connection: Connection) -> list[Path]:
        with output.writing("--out", out, expected="a folder that can be written to"):
            return await record_session(connection.client, session_name(session), out)

    files = execute(common.server(), work)
    if common.as_json:
        output.print_json({"folder": str(out), "files": [str(path) for path in files]})
    else:
        print(f"{out}: {len(files) - 1} replies\n  replay: dressage run --replay {out}")


@expand_groups
def gc(
    common: CommonOptions,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be removed, and remove nothing.")] = False,
    force: Annotated[
        bool,
        typer.Option("--force", help="Remove also what is refused because the database or the clock may be wrong."),
    ] = False,
) -> None:
    """Remove deleted sessions after their grace period, and other data that the server no longer keeps.

    A server does this by itself. docs/operations.md lists what is removed and the settings.
    """
    from dressage.cli import garbage

    garbage.collect(common.server(), dry_run=dry_run, force=force, as_json=common.as_json)


def register(app: typer.Typer) -> None:
    """Add the commands to the application, in the order of the help."""
    app.command()(run)
    app.command()(bench)
    app.command()(report)
    app.command()(elicit)
    app.command()(serve)
    app.command()(train)
    app.command()(check)
    app.command("eval")(evaluate)
    app.command()(render)
    app.command()(export)
    app.command()(record)
    app.command()(doctor)
    app.command()(gc)
