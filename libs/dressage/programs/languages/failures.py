"""Errors of a plug-in's code, as errors that name the function, the exception and its line."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from contextlib import contextmanager

from dressage.errors import DressageError, InvalidArgument

FAILED = "LANGUAGE_FAILED"
"""Reason of an error that the code of a plug-in caused."""
_SHOWN = 300


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
        shown = str(error).strip()[:_SHOWN] or "no message"
        message = (
            f"{part}: the plug-in raised {type(error).__name__}{place}: {shown}. Correct it and register it again."
        )
        raise InvalidArgument(message, field=part, reason=FAILED) from error
