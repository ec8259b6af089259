"""Reads replies with the function of a plug-in, in a sandboxed process."""

from __future__ import annotations

from collections.abc import Sequence

from dressage.errors import InvalidArgument
from dressage.programs.languages.failures import FAILED, plugin_code
from dressage.programs.languages.plugin import Plugin


def read_replies(plugin: Plugin, replies: Sequence[str]) -> list[list[str]]:
    """Return the texts of programs that the plug-in reads in each reply.

    :raises InvalidArgument: for a function that raises, or returns anything but texts.
    """
    assert plugin.read_reply is not None
    found = []
    for reply in replies:
        with plugin_code("read_reply"):
            texts = list(plugin.read_reply(reply))
        if not all(isinstance(text, str) for text in texts):
            raise InvalidArgument(field="read_reply", value=texts, expected="texts of programs", reason=FAILED)
        found.append(texts)
    return found
