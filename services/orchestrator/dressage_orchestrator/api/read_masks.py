"""Read masks of lists (AIP-157): the fields of the entries that a caller asks for."""

from __future__ import annotations

from typing import Any, TypeVar

from dressage.errors import InvalidArgument
from google.protobuf.field_mask_pb2 import FieldMask
from google.protobuf.message import Message

M = TypeVar("M", bound=Message)

_ALL = "*"
_MAX_PATHS = 100


class ReadMask:
    """A read mask; without paths the entries are summaries.

    :raises InvalidArgument: for paths that are no fields of the entries, and for too many.
    """

    def __init__(self, mask: FieldMask, kind: type[Message]) -> None:
        self.paths = tuple(mask.paths)
        if len(self.paths) > _MAX_PATHS:
            expected = f"at most {_MAX_PATHS} paths"
            raise InvalidArgument(field="read_mask", value=f"{len(self.paths)} paths", expected=expected)
        if _ALL in self.paths and len(self.paths) > 1:
            raise InvalidArgument(
                field="read_mask", value=",".join(self.paths), expected="`*` alone, or paths of fields"
            )
        descriptor: Any = kind.DESCRIPTOR
        for path in self.paths:
            if path != _ALL and not FieldMask(paths=[path]).IsValidForDescriptor(descriptor):
                expected = f"paths of fields of {descriptor.name}, or `*`"
                raise InvalidArgument(field="read_mask", value=path, expected=expected)

    @property
    def is_set(self) -> bool:
        """Whether the entries have to be read with all fields."""
        return bool(self.paths)

    def apply(self, entry: M) -> M:
        """Return the entry with the fields of the mask alone."""
        if not self.paths or _ALL in self.paths:
            return entry
        part = type(entry)()
        FieldMask(paths=self.paths).MergeMessage(entry, part)
        return part
