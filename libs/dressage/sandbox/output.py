"""What sandboxed processes print and send as text: the only place that reads it.

Generated code writes whatever it likes to standard output and into messages: control sequences, bytes that are no text, forged
tracebacks with numbers of any length. Every function here takes any value, never raises because of it, and returns text that
is bounded and printable, or a number within bounds.
"""

from __future__ import annotations

import os
import re
import threading
from typing import IO, Any

from dressage.terminal import printable

MAX_OUTPUT = 32 * 1024
"""Bytes of a process's output that are kept, its last ones, and characters of the text that is made of them."""
_SHOWN = 400
_LINE = 300
_DIGITS = 7


class OutputTail:
    """Reads a process's output as long as there is any, in a thread of its own, and keeps its end."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream, self._kept = stream, bytearray()
        self._thread = threading.Thread(target=self._read, name="sandbox-output", daemon=True)
        self._thread.start()

    def text(self, timeout: float) -> str:
        """Return the end of the output, once the stream ends or after ``timeout`` seconds."""
        self._thread.join(timeout)
        return tail_text(bytes(self._kept))

    def _read(self) -> None:
        with self._stream as stream:
            while data := os.read(stream.fileno(), 65536):
                self._kept += data
                if len(self._kept) > 2 * MAX_OUTPUT:
                    del self._kept[:-MAX_OUTPUT]


def tail_text(data: bytes) -> str:
    """Return the end of what a process wrote, as printable text of at most `MAX_OUTPUT` characters."""
    return printable(data[-MAX_OUTPUT:].decode("utf-8", "replace"))[-MAX_OUTPUT:]


def excerpt(value: Any, most: int = _SHOWN) -> str:
    """Return a text as printable text of at most ``most`` characters; of another value only its type."""
    if not isinstance(value, str):
        return f"<{type(value).__name__[:_SHOWN]}>"[:most]
    text = printable(str.__str__(value)[: most + 1])
    return text if len(text) <= most else text[: max(0, most - 3)] + "..."[:most]


def last_line(text: str, most: int = _LINE) -> str:
    """Return the last line of an output that is not empty, as an excerpt; an empty text if there is none."""
    return excerpt((text.strip().splitlines() or [""])[-1], most)


def line_number(text: str, filename: str, most: int) -> int:
    """Return the line of a file in the first of the stacks in an output; 0 if there is none, or none from 1 to ``most``."""
    match = re.search(rf'File "{re.escape(filename)}", line (\d{{1,{_DIGITS}}})(?!\d)', text, re.ASCII)
    number = int(match.group(1)) if match else 0
    return number if number <= most else 0
