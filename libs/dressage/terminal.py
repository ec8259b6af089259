"""Text of others on a terminal: control sequences are shown, not obeyed.

Intents, replies of models, names in generated code and logs of trainers reach terminals. A control sequence in them could erase
lines, set the title or the clipboard, or show text in another order. `printable` replaces control characters by their JSON
escapes, which are visible to people and equal to programs that read JSON.
"""

from __future__ import annotations

import re
from typing import Any, TextIO

_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""Control characters (C0 and C1) except tab and newline, controls of the direction of text, other ends of lines, and
halves of surrogate pairs, which cannot be written."""


def printable(text: str) -> str:
    """Replace control characters by ``\\u`` escapes."""
    return _CONTROL.sub(lambda match: f"\\u{ord(match.group()):04x}", text)


class PrintableStream:
    """A text stream that writes only printable text.

    :param stream: gets the text. Everything but writing is its own.
    """

    def __init__(self, stream: TextIO) -> None:
        self.raw = stream
        """The stream without the replacement, for text that contains control sequences of our own."""

    def write(self, text: str) -> int:
        """Write text; returns its length."""
        self.raw.write(printable(text))
        return len(text)

    def writelines(self, lines: Any) -> None:
        """Write lines."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.raw, name)


def raw_stream(stream: Any) -> TextIO:
    """Return the stream below a `PrintableStream`; others as they are."""
    result: TextIO = stream.raw if isinstance(stream, PrintableStream) else stream
    return result


def make_console(stream: Any, **options: Any) -> Any:
    """Return a console of rich on a stream, which shows control characters in texts and keeps those of rich."""
    from rich.console import Console
    from rich.segment import Segment

    class PrintableConsole(Console):
        """Escapes the text of segments; those that control the terminal are rich's own."""

        def _render_buffer(self, buffer: Any) -> str:
            safe = (part if part.control else Segment(printable(part.text), part.style) for part in buffer)
            return super()._render_buffer(safe)

    return PrintableConsole(file=raw_stream(stream), **options)
