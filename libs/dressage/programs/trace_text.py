"""Prints a trace for a language model: the initial grid, the program, the first steps and the totals, of bounded length."""

from __future__ import annotations

from collections.abc import Iterator

from dressage.programs.trace import Agent, Step, Trace

SHOWN_STEPS = 49
"""Steps of an episode in a text."""
MAX_TEXT = 48 * 1024
"""Characters of a text."""
_MAX_LISTING = 16 * 1024
_MAX_STEPS = 28 * 1024
_MAX_LINE = 160
_AROUND = 2
"""Lines before and after the executing line."""


def trace_text(trace: Trace, *, program_lines: bool, most: int = SHOWN_STEPS) -> str:
    """Return the text of an episode.

    :param program_lines: repeat the lines around the one that executes at each step, with a mark on it.
    :param most: most steps of the text.
    """
    parts = [
        "Initial grid (rows from the top; row 0 and column 0 are at the top left):",
        *trace.grid,
        "",
        trace.legend,
        f"The agent is at {_place(trace.start)}.",
        "",
        "Program, with line numbers:",
        *_listing(trace),
        "",
        "Steps (line, call, result or reward; after an action, the 3x3 cells around the agent):",
        *_steps(trace, program_lines=program_lines, most=most),
        "",
        *_totals(trace),
    ]
    return "\n".join(parts)


def _listing(trace: Trace) -> list[str]:
    room, listing = _MAX_LISTING, list[str]()
    lines = _lines(trace)
    for number, line in enumerate(lines, start=1):
        row = f"{number:3d} | {line}"
        room -= len(row) + 1
        if room < 0:
            return [*listing, f"    … {len(lines) - number + 1} more lines"]
        listing.append(row)
    return listing


def _lines(trace: Trace) -> list[str]:
    """The lines of the program; deeply indented ones are cut."""
    return [line if len(line) <= _MAX_LINE else line[:_MAX_LINE] + "…" for line in trace.printout.text.split("\n")]


def _steps(trace: Trace, *, program_lines: bool, most: int) -> Iterator[str]:
    lines, room = _lines(trace), _MAX_STEPS
    for number, step in enumerate(trace.steps[:most], start=1):
        rows = [_step(number, step)]
        if program_lines:
            rows += _around(lines, step.line)
        if step.kind == "action":
            rows += [f"      {row}" for row in step.view]
        room -= sum(len(row) + 1 for row in rows)
        if room < 0:
            yield f"… the steps from {number} on are left out"
            return
        yield from rows
    if len(trace.steps) > most:
        yield f"… the steps from {most + 1} on are left out"


def _step(number: int, step: Step) -> str:
    text = f"{number:3d}. line {step.line}: {step.operation}"
    if step.kind == "test":
        return f"{text} is {step.result}"
    reward = f", reward {step.reward:+.4g}" if step.reward else ""
    return f"{text}{reward}; then at {_place(step.agent)}"


def _around(lines: list[str], line: int) -> list[str]:
    first, last = max(1, line - _AROUND), min(len(lines), line + _AROUND)
    return [
        f"    {'>' if number == line else ' '}{number:4d} | {lines[number - 1]}" for number in range(first, last + 1)
    ]


def _place(agent: Agent) -> str:
    note = f", {agent.note}" if agent.note else ""
    return f"row {agent.row}, column {agent.column}, facing {agent.heading}{note}"


def _totals(trace: Trace) -> list[str]:
    """The sums of the whole episode, and why it ended."""
    if trace.terminated:
        ending = "The task ended the episode."
    elif trace.exhausted:
        ending = "The episode was stopped: its loops ran too often."
    elif trace.crashed:
        ending = "The episode was stopped: a while loop began again in a state that it had seen, or too many calls were made."
    else:
        ending = "The program came to its end."
    totals = f"Totals of the episode: return {trace.total:.4g}, {trace.actions} actions, {trace.calls} calls."
    return [totals, ending]
