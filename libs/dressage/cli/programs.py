"""`dressage programs …`: evaluate, trace, sample, replay and draw programs; register languages of your own."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from dressage.cli.options import ENVIRONMENTS, DataDir, Json

app = typer.Typer(
    help="Evaluate, trace, draw and sample programs of Karel, Minigrid and registered languages.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

Program = Annotated[
    str, typer.Argument(metavar="PROGRAM", help="Text of a program, its Python form, or a file or bundle with one.")
]
Task = Annotated[
    str, typer.Option("--task", metavar="ID", help="Task, such as karel/DoorKey or minigrid/LavaGap; DoorKey is short.")
]
Profile = Annotated[
    str,
    typer.Option(
        metavar="corrected|llmgs-v1", help="Rules of the task: corrected, or those of the published experiment."
    ),
]
State = Annotated[int, typer.Option("--seed", metavar="N", min=0, max=2**32 - 1, help="Seed of the initial state.")]


@app.command("eval")
def evaluate(
    program: Program,
    task: Task,
    profile: Profile = "corrected",
    states: Annotated[
        int, typer.Option(metavar="N", min=1, max=10_000, help="Number of initial states: those of a report.")
    ] = 32,
    as_json: Json = False,
    data_dir: DataDir = None,
) -> None:
    """Print the mean return of a program over initial states; with --json that of each state."""
    from dressage.cli import program_runs

    program_runs.evaluate(program, task, profile, count=states, as_json=as_json, data_dir=data_dir)


@app.command("trace")
def trace(
    program: Program,
    task: Task,
    profile: Profile = "corrected",
    seed: State = 0,
    steps: Annotated[int, typer.Option(metavar="N", min=1, max=20_000, help="Steps to print at most.")] = 200,
    as_json: Json = False,
    data_dir: DataDir = None,
) -> None:
    """Print every perception and action of an episode with the line that executes it."""
    from dressage.cli import program_runs

    program_runs.trace(program, task, profile, seed=seed, limit=steps, as_json=as_json, data_dir=data_dir)


@app.command("render")
def render(
    program: Program,
    task: Task,
    out: Annotated[Path, typer.Option("--out", "-o", metavar="FILE", help="The file to write: .gif, .mp4 or .png.")],
    profile: Profile = "corrected",
    seed: State = 0,
    fps: Annotated[float, typer.Option(metavar="N", min=0.5, max=30.0, help="Steps per second.")] = 5.0,
    frames: Annotated[int, typer.Option(metavar="N", min=2, max=2_000, help="Frames at most.")] = 600,
    as_json: Json = False,
    data_dir: DataDir = None,
) -> None:
    """Draw an episode of a program: the grid, and the program with the executing line.

    A .png shows the end of the episode.
    """
    from dressage.cli import program_runs

    program_runs.render(
        program, task, profile, seed=seed, out=out, fps=fps, frames=frames, as_json=as_json, data_dir=data_dir
    )


@app.command("sample")
def sample(
    count: Annotated[int, typer.Option("-n", metavar="N", min=1, max=100_000, help="Number of programs.")] = 10,
    seed: Annotated[int, typer.Option(metavar="N", min=0, max=2**63 - 1, help="Seed of the draws.")] = 0,
    language: Annotated[
        str, typer.Option(metavar="NAME", help="Language: karel, minigrid or a registered one.")
    ] = "karel",
    as_json: Json = False,
    data_dir: DataDir = None,
) -> None:
    """Draw random programs from the probabilities of a language, one a line."""
    from dressage.cli import program_runs

    program_runs.sample(language, count=count, seed=seed, as_json=as_json, data_dir=data_dir)


@app.command("replay")
def replay(
    cases: Annotated[
        Path,
        typer.Argument(metavar="CASES.jsonl", help="Recorded cases, also compressed with gzip; - is standard input."),
    ],
    as_json: Json = False,
    data_dir: DataDir = None,
) -> None:
    """Run recorded cases from their initial states and print the differences.

    The exit code is 1 if there is one.
    """
    from dressage.cli import program_runs

    raise typer.Exit(program_runs.replay(cases, as_json=as_json, data_dir=data_dir))


@app.command("register")
def register(
    source: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE", help="Path of a plug-in's module, entry point of dressage.programs, or MODULE:ATTRIBUTE."
        ),
    ],
    as_json: Json = False,
    data_dir: DataDir = None,
) -> None:
    """Register a language of your own.

    A sandboxed process tries the plug-in, describes it and compiles its rules. A language of the same name is replaced.
    """
    from dressage.cli import output
    from dressage.programs.languages import registering

    with output.writing(
        "folder of languages",
        os.environ.get(ENVIRONMENTS, ""),
        expected="a folder that can be written to; set --data-dir or DRESSAGE_ENVIRONMENTS",
    ):
        language = registering.register(source, lambda stage: print(f"{stage} …", file=sys.stderr, flush=True))
    tasks = [f"{language.name}/{task}" for task in language.tasks]
    if as_json:
        output.print_json({"name": language.name, "tasks": tasks, "note": language.note})
        return
    print(f"language {language.name}: {', '.join(tasks)}")
    if language.note:
        print(f"note: {language.note}")


@app.command("unregister")
def unregister(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of a registered language.")],
    data_dir: DataDir = None,
) -> None:
    """Remove a registered language."""
    from dressage.programs.languages import registering

    registering.unregister(name)
    print(f"removed: {name}")


@app.command("languages")
def languages(as_json: Json = False, data_dir: DataDir = None) -> None:
    """List the registered languages and their tasks."""
    from dressage.cli import output
    from dressage.programs.languages import registering

    rows = registering.languages()
    if as_json:
        output.print_json({"languages": rows})
        return
    for row in rows:
        if "problem" in row:
            print(f"{row['name']}: {row['problem']}")
        else:
            note = f" ({row['note']})" if row["note"] else ""
            print(f"{row['name']}: {', '.join(row['tasks'])}{note}")
    if not rows:
        print("none; `dressage programs register` adds one")
