"""Errors of a plug-in's code, as errors that name the function, the exception and its line."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from dressage.errors import DressageError, InvalidArgument

FAILED = "LANGUAGE_FAILED"
"""Reason of an error that the code of a plug-in caused."""
_SHOWN = 300
_MAX_WORD = 200


@contextmanager
def plugin_code(part: str) -> Iterator[None]:
    """Convert what the code of a plug-in raises.

    :param part: the function that is called, such as ``environment.step``.
    :raises InvalidArgument: with the reason `FAILED`.
    """
    try:
        yield
    except MemoryError:
        raise
    except DressageError as error:
        raise InvalidArgument(f"{part}: {error.message}", field=part, reason=FAILED) from error
    except (Exception, SystemExit, KeyboardInterrupt, GeneratorExit) as error:
        frames = traceback.extract_tb(error.__traceback__)
        place = f" in line {frames[-1].lineno} of {frames[-1].filename.rpartition('/')[2]}" if len(frames) > 1 else ""
        excerpt = str(error).strip()[:_SHOWN] or "no message"
        message = (
            f"{part}: the plug-in raised {type(error).__name__}{place}: {excerpt}. Correct it and register it again."
        )
        raise InvalidArgument(message, field=part, reason=FAILED) from error


def word(value: Any, most: int = _MAX_WORD) -> str:
    """Return a text of a plug-in without characters that steer a terminal.

    :raises TypeError: if it is no text.
    """
    if not isinstance(value, str):
        raise TypeError(f"{type(value).__name__} instead of a text")
    return "".join(character for character in value[:most] if character.isprintable())


def process_error(name: str, message: str, tail: str = "") -> DressageError:
    """Return the error of a process that ended, or was ended, while it ran the code of a language."""
    last = tail.strip().splitlines()[-1:] or [""]
    excerpt = f": {word(last[0], _SHOWN)}" if last[0] else ""
    return DressageError(
        f"language {name}: the process that runs the plug-in's code ended: {message}{excerpt}. Correct the plug-in and "
        "register it again.",
        reason=FAILED,
    )
