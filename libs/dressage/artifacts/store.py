"""The protocol that every artifact store fulfils."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Protocol

DEFAULT_CHUNK = 1 << 20
"""Bytes in a chunk of `ArtifactStore.read`."""


@dataclass(frozen=True)
class ArtifactInfo:
    """What a store knows about one artifact.

    :param size: in bytes.
    :param modified: when it was written, UTC.
    :param sha256: in hex, where the store keeps it without reading the file.
    """

    key: str
    size: int
    modified: datetime
    sha256: str | None = None


@dataclass(frozen=True)
class Grant:
    """Leave to put or get one artifact without the store's credentials.

    :param url: ``file://`` where the store is a directory, else a presigned ``https://`` URL.
    :param headers: to send with the request.
    """

    url: str
    headers: Mapping[str, str] = field(default_factory=dict)


class ArtifactStore(Protocol):
    """Files by key.

    Every method raises `InvalidArgument` for what is no key and `Unavailable` when the store fails.
    """

    def put(self, key: str, data: bytes, *, if_absent: bool = False) -> bool:
        """Writes the bytes, whole or not at all.

        :param if_absent: leave an artifact that is there as it is.
        :return: whether the bytes were written; False only with ``if_absent``, when the key existed.
        """
        ...

    def put_file(self, key: str, path: Path, *, if_absent: bool = False) -> bool:
        """Writes a file's contents; otherwise as `put`."""
        ...

    def get(self, key: str) -> bytes:
        """The bytes.

        :raises NotFound: when there is no such artifact.
        """
        ...

    def read(self, key: str, chunk: int = DEFAULT_CHUNK, *, offset: int = 0) -> Iterator[bytes]:
        """The bytes from ``offset`` on, in chunks of at most ``chunk`` bytes.

        :raises NotFound: at the first chunk, when there is no such artifact.
        """
        ...

    def info(self, key: str) -> ArtifactInfo:
        """Its facts.

        :raises NotFound: when there is no such artifact.
        """
        ...

    def list(self, prefix: str = "") -> list[ArtifactInfo]:
        """The artifacts whose keys begin with the prefix, in order of keys."""
        ...

    def exists(self, key: str) -> bool:
        """Whether there is such an artifact."""
        ...

    def delete_prefix(self, prefix: str) -> int:
        """Deletes the artifacts whose keys begin with the prefix (not empty); how many they were."""
        ...

    def grant_put(self, key: str) -> Grant:
        """Leave to write that key."""
        ...

    def grant_get(self, key: str) -> Grant:
        """Leave to read that key; whether it exists shows on use."""
        ...
