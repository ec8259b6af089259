"""Evaluations that a trainer leaves undone, in a file beside the checkpoint that the next attempt goes on from.

The policies to be evaluated are those of boundaries before the checkpoint, which nobody could make again from it.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from dressage.sandbox.pipe import ProtocolError, encode, unpack

from dressage_trainer.messages import EvaluateMessage, parse

_SIZE = struct.Struct("<Q")


def key_beside(checkpoint: str) -> str:
    """The file's key, of the checkpoint's."""
    return str(PurePosixPath(checkpoint).with_suffix(".evaluations"))


def write(path: Path, evaluations: Sequence[EvaluateMessage]) -> None:
    """Writes them, in their order: each as the learner sent it, after its size."""
    with path.open("wb") as file:
        for message in evaluations:
            data = encode(message.to_dict())
            file.write(_SIZE.pack(len(data)))
            file.write(data)


def read(path: Path) -> list[EvaluateMessage]:
    """What `write` wrote.

    :raises ProtocolError: if that is not what the file holds.
    """
    evaluations = []
    with path.open("rb") as file:
        while size := file.read(_SIZE.size):
            if len(size) < _SIZE.size:
                raise ProtocolError(f"{path.name} is cut short")
            message = parse(unpack(file.read(_SIZE.unpack(size)[0])))
            if not isinstance(message, EvaluateMessage):
                raise ProtocolError(f"{path.name} holds a message of type {message.type!r}, not an evaluation")
            evaluations.append(message)
    return evaluations
