"""Evaluations that a trainer leaves undone, in a file beside the checkpoint that the next attempt goes on from.

The policies to be evaluated are those of boundaries before the checkpoint, which nobody could make again from it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from dressage.sandbox.pipe import ProtocolError, encode, unpack

from dressage_trainer.messages import EvaluateMessage, parse


def key_beside(checkpoint: str) -> str:
    """The file's key, of the checkpoint's."""
    return str(PurePosixPath(checkpoint).with_suffix(".evaluations"))


def write(path: Path, evaluations: Sequence[EvaluateMessage]) -> None:
    """Writes them, in their order.

    :raises ProtocolError: if they are too large for one file, as a message to a sandbox would be.
    """
    path.write_bytes(encode({"evaluations": [message.to_dict() for message in evaluations]}))


def read(path: Path) -> list[EvaluateMessage]:
    """What `write` wrote.

    :raises ProtocolError: if that is not what the file holds.
    """
    entries = unpack(path.read_bytes()).get("evaluations")
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise ProtocolError(f"{path.name} holds no list of evaluations")
    found = [parse(entry) for entry in entries]
    evaluations = [message for message in found if isinstance(message, EvaluateMessage)]
    if len(evaluations) < len(found):
        raise ProtocolError(f"{path.name} holds other messages than evaluations")
    return evaluations
