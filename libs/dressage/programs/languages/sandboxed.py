"""Runs the code of a registered language in a sandboxed process: plays and traces for a command, reads replies for judge.

What the process sends is checked and made anew: it may be hostile.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dressage.errors import DressageError, InvalidArgument
from dressage.programs.languages.description import Description
from dressage.programs.languages.failures import FAILED, process_error
from dressage.programs.languages.failures import word as _word
from dressage.programs.languages.stepped import SteppedEpisode
from dressage.programs.pretty import to_python
from dressage.programs.syntax import Language, Program, parse, to_text
from dressage.programs.trace import Agent, Contents, Step, Trace
from dressage.sandbox import call
from dressage.sandbox.limits import GIB, Limits
from dressage.sandbox.pipe import MALFORMED
from dressage.sandbox.scratch import scratch_folder

SECONDS = 300.0
"""Longest time of a call."""
LIMITS = Limits(memory_bytes=2 * GIB, wall_seconds=SECONDS, file_bytes=GIB)
_MESSAGE_BYTES = 64 * 2**20
_MAX_GRID = 200
_MAX_PROGRAMS = 16
"""Programs of a reply that are read."""


def play(
    description: Description, task: str, profile: str, program: Program, states: Sequence[int]
) -> list[SteppedEpisode]:
    """Play a program from each state.

    :raises DressageError: if the plug-in's code fails, ends the process, or does not end in time.
    """
    rows = _ask(description, task, profile, program, states, trace=False)
    try:
        if len(rows) != len(states):
            raise ValueError(f"{len(rows)} episodes of {len(states)}")
        return [
            SteppedEpisode(
                float(row["reward"]),
                int(row["steps"]),
                int(row["calls"]),
                *(bool(row[name]) for name in ("terminated", "crashed", "exhausted")),
            )
            for row in rows
        ]
    except MALFORMED as error:
        raise _malformed_reply(description, error) from error


def trace(description: Description, task: str, profile: str, program: Program, state: int) -> Trace:
    """Play a program from one state and record its steps.

    :raises DressageError: see `play`.
    """
    row = _ask(description, task, profile, program, [state], trace=True)
    try:
        rows, columns = (min(int(size), _MAX_GRID) for size in row["size"])
        contents = Contents(rows, columns)
        contents.walls.update((int(r), int(c)) for r, c in row["walls"])
        contents.objects.update({(int(r), int(c)): _word(name) for r, c, name in row["objects"]})
        (total, actions, calls), (terminated, crashed, exhausted) = row["totals"], row["ends"]
        return Trace(
            to_python(program),
            tuple(_word(line) for line in row["grid"][:_MAX_GRID]),
            _word(row["legend"], 1_000),
            _agent(row["start"]),
            tuple(_step(step) for step in row["steps"]),
            float(total),
            int(actions),
            int(calls),
            bool(terminated),
            bool(crashed),
            bool(exhausted),
            contents,
        )
    except MALFORMED as error:
        raise _malformed_reply(description, error) from error


def read_replies_in_sandbox(
    description: Description, replies: Sequence[str], *, limits: Limits, scratch: Path, allow_unsandboxed: bool = False
) -> list[list[str]]:
    """Return the canonical programs that a plug-in's code finds in each reply, each once; other texts are left out.

    :param limits: with the deadline of the call.
    :param scratch: existing folder for temporary folders.
    :raises DressageError: if the plug-in's code fails.
    """
    if "read_reply" not in description.own:
        expected = "a language whose plug-in reads replies"
        raise InvalidArgument(field="environment", value=description.name, expected=expected)
    request = {"name": description.name, "replies": list(replies)}
    with scratch_folder(scratch, prefix="language-") as folder:
        rows = _call("read", description, request, limits, folder, allow_unsandboxed=allow_unsandboxed)
    if not isinstance(rows, list) or len(rows) != len(replies):
        raise _malformed_reply(description, ValueError("another number of replies"))
    return [_canonical(texts, description.language) for texts in rows]


def _canonical(texts: Any, language: Language) -> list[str]:
    programs: dict[str, None] = {}
    for text in texts[:_MAX_PROGRAMS] if isinstance(texts, list) else []:
        with contextlib.suppress(InvalidArgument):
            programs[to_text(parse(text, language))] = None
    return list(programs)


def _step(row: Any) -> Step:
    kind = "test" if row["kind"] == "test" else "action"
    return Step(
        line=int(row["line"]),
        kind=kind,  # type: ignore[arg-type]
        operation=_word(row["operation"]),
        result=None if row["result"] is None else bool(row["result"]),
        reward=float(row["reward"]),
        agent=_agent(row["agent"]),
        markers=(),
        walls=tuple((int(r), int(c), bool(wall)) for r, c, wall in row["walls"]),
        view=tuple(_word(line) for line in row["view"][:3]),
        objects=tuple((int(r), int(c), _word(name)) for r, c, name in row["objects"]),
    )


def _agent(row: Any) -> Agent:
    return Agent(int(row["row"]), int(row["column"]), _word(row["heading"]), _word(row["note"]))


def _ask(
    description: Description, task: str, profile: str, program: Program, states: Sequence[int], *, trace: bool
) -> Any:
    request = {
        "name": description.name,
        "program": to_text(program),
        "task": task,
        "profile": profile,
        "states": list(states),
        "trace": trace,
    }
    with scratch_folder(prefix="dressage-language-") as scratch:
        return _call("play", description, request, LIMITS, scratch)


def _call(
    target: str,
    description: Description,
    request: Mapping[str, Any],
    limits: Limits,
    scratch: Path,
    *,
    allow_unsandboxed: bool = False,
) -> Any:
    """Run a target of `process` and return its result."""
    try:
        reply = call.run(
            f"dressage.programs.languages.process:{target}",
            request,
            limits=limits,
            scratch=scratch,
            max_message_bytes=_MESSAGE_BYTES,
            allow_unsandboxed=allow_unsandboxed,
        )
    except call.SandboxFailure as error:
        raise process_error(description.name, error.message, error.stderr_tail) from error
    return result_of(reply, description.name)


def result_of(reply: Any, name: str) -> Any:
    """Return the result of a reply.

    :raises InvalidArgument: if it is a refusal.
    """
    if "done" in reply:
        return reply["done"]
    refused = reply.get("refused")
    values = refused if isinstance(refused, dict) else {}
    message, field = (_word(str(values.get(part, "")), 2_000) for part in ("message", "field"))
    raise InvalidArgument(f"language {name}: {message}", field=field, reason=FAILED)


def _malformed_reply(description: Description, error: Exception) -> DressageError:
    return process_error(description.name, f"its reply is malformed ({error})")
