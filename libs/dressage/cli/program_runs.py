"""`dressage programs eval`, `trace`, `render`, `sample` and `replay`."""

from __future__ import annotations

import dataclasses
import statistics
from pathlib import Path
from typing import Any

from dressage.cli import output
from dressage.cli.program_inputs import find_task, read_cases, read_program, use_kernels
from dressage.errors import InvalidArgument
from dressage.programs.pretty import to_python
from dressage.programs.syntax import to_text
from dressage.programs.trace import Step, Trace
from dressage.programs.trace_json import step_values
from dressage.sdk.texts import quantity


def evaluate(source: str, name: str, profile: str, *, count: int, as_json: bool, data_dir: Path | None) -> None:
    """Print the returns of a program on the report states of a task.

    :raises InvalidArgument: for a bad program or profile.
    :raises NotFound: for an unknown task.
    """
    task = find_task(name, profile)
    program = read_program(source, task.language)
    states = task.report_states(count)
    use_kernels(data_dir)
    episodes: list[Any] = list(task.play(program, states))
    returns = [float(episode.reward) for episode in episodes]
    solved = sum(value >= task.threshold(1.0) for value in returns)
    if as_json:
        rows = [
            {
                "state": state,
                "return": float(episode.reward),
                "steps": int(episode.steps),
                "calls": episode.calls,
                "terminated": episode.terminated,
                "crashed": episode.crashed,
            }
            for state, episode in zip(states, episodes, strict=True)
        ]
        output.print_json(
            {
                "task": task.environment,
                "profile": task.profile,
                "program": to_text(program),
                "python": to_python(program).text,
                "mean_return": statistics.fmean(returns),
                "solved": solved,
                "states": rows,
            }
        )
        return
    print(f"mean return {statistics.fmean(returns):.4f} on {count} states of {task.environment} ({task.profile})")
    print(f"return 1 in {solved} of {count}; lowest {min(returns):.4g}, highest {max(returns):.4g}")


def trace(source: str, name: str, profile: str, *, seed: int, limit: int, as_json: bool, data_dir: Path | None) -> None:
    """Print the steps of a program from one initial state."""
    task = find_task(name, profile)
    program = read_program(source, task.language)
    use_kernels(data_dir)
    traced = task.trace(program, seed)
    if as_json:
        output.print_json(
            {
                "task": task.environment,
                "profile": task.profile,
                "seed": seed,
                "python": traced.printout.text,
                "grid": list(traced.grid),
                "legend": traced.legend,
                "steps": [step_values(step) for step in traced.steps[:limit]],
                "return": traced.total,
                "actions": traced.actions,
                "calls": traced.calls,
                "terminated": traced.terminated,
                "crashed": traced.crashed,
            }
        )
        return
    lines = traced.printout.text.split("\n")
    print("\n".join(traced.grid))
    print(f"{traced.legend}\n")
    print("\n".join(f"{number:4d} | {line}" for number, line in enumerate(lines, start=1)))
    print()
    for number, step in enumerate(traced.steps[:limit], start=1):
        print(_step_line(number, step))
    if len(traced.steps) > limit:
        print(f"… {len(traced.steps) - limit} more; --steps prints them")
    print(_ending(traced))


def _step_line(number: int, step: Step) -> str:
    agent = step.agent
    result = f"is {step.result}" if step.kind == "test" else (f"reward {step.reward:+.4g}" if step.reward else "")
    note = f", {agent.note}" if agent.note else ""
    place = f"row {agent.row}, column {agent.column}, facing {agent.heading}{note}"
    return f"{number:5d}  line {step.line:<3d} {step.operation:32} {result:14} {place}"


def _ending(traced: Trace) -> str:
    cause = "the program came to its end"
    if traced.terminated:
        cause = "the task ended the episode"
    elif traced.crashed or traced.exhausted:
        cause = "stopped, because a loop returned to an earlier state or a limit of calls was reached"
    return f"return {traced.total:.4g} after {traced.actions} actions and {traced.calls} calls: {cause}"


def sample(language: str, *, count: int, seed: int, as_json: bool, data_dir: Path | None) -> None:
    """Print random programs.

    :raises InvalidArgument: for an unknown language.
    """
    from dressage.programs.families import families

    grammars = {family.name: family.grammar for family in families()}
    if language not in grammars:
        raise InvalidArgument(
            field="--language", problem="unknown", value=language, expected=f"one of {', '.join(grammars)}"
        )
    use_kernels(data_dir)
    from dressage.programs.search.draws import random_programs

    programs = random_programs(grammars[language], seed, count)
    if as_json:
        rows = [{"program": to_text(program), "python": to_python(program).text} for program in programs]
        output.print_json({"language": language, "seed": seed, "programs": rows})
    else:
        print("\n".join(to_text(program) for program in programs))


def replay(path: Path, *, as_json: bool, data_dir: Path | None) -> int:
    """Replay a file of cases, print the differences and a line with their number; return the exit code.

    :raises InvalidArgument: for a file that cannot be read or has no cases, or a malformed record.
    """
    from dressage.programs.replay import replay as replay_cases

    use_kernels(data_dir)
    result = replay_cases(read_cases(path))
    if not result.cases:
        raise InvalidArgument(
            field="CASES", problem="no cases", value=str(path), expected="records of kind case or agg"
        )
    rows = [dataclasses.asdict(difference) for difference in result.differences]
    if as_json:
        output.print_json({"cases": result.cases, "differences": rows})
    else:
        for row in rows:
            seed = "all seeds" if row["seed"] is None else f"seed {row['seed']}"
            print(
                f"{row['task']}, {seed}: {row['field']}: expected {row['expected']}, got {row['got']}: {row['program']}"
            )
        print(f"{quantity(result.cases, 'case')}, {quantity(len(rows), 'difference')}")
    return 1 if rows else 0


def render(
    source: str,
    name: str,
    profile: str,
    *,
    seed: int,
    out: Path,
    fps: float,
    frames: int,
    as_json: bool,
    data_dir: Path | None,
) -> None:
    """Write the picture or video of an episode and print its path.

    :raises InvalidArgument: for a bad program, or a file that cannot be written.
    :raises NotFound: for an unknown task.
    :raises FailedPrecondition: if a package for the format is not installed.
    """
    from dressage.sdk.program_pictures import check_suffix, draw_episode

    check_suffix(out)
    task = find_task(name, profile)
    program = read_program(source, task.language)
    use_kernels(data_dir)
    with output.writing("--out", out):
        count = draw_episode(task, program, seed, out, fps=fps, limit=frames)
    if as_json:
        output.print_json({"file": str(out), "frames": count, "task": task.environment, "seed": seed})
    else:
        print(out)
