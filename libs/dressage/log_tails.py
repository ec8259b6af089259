"""The end of a process's output, as a part of an error message."""

from __future__ import annotations

import re

from dressage.terminal import printable

_HEADER = re.compile(r"(Exception Group )?Traceback \(most recent call last\):")
_FRAME = re.compile(r'\s*File ".*", line \d+')


def without_tracebacks(text: str) -> str:
    """Remove the frames of Python's tracebacks and control characters: callers need the exceptions, not our source files.

    The whole output is in the log. A text may begin within a traceback.
    """
    lines: list[str] = []
    inside = False
    for line in text.splitlines():
        drawn = re.match(r"\s*[|+]", line)
        content = re.sub(r"^\s*[|+]-*(\+-+)?(\s*\d+ -+)? ?", "", line) if drawn else line
        inside = bool(_HEADER.match(content) or _FRAME.match(content)) or (inside and content[:1] in (" ", "\t"))
        if not inside:
            lines.append(line)
    return printable("\n".join(lines))
