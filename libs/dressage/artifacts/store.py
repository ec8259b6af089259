"""The protocol of artifact stores, and the form of keys, which lets none refer to a file outside the store."""

from __future__ import annotations

import builtins
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Protocol

from dressage.errors import InvalidArgument

DEFAULT_CHUNK = 1 << 20
"""Size in bytes of a chunk of `ArtifactStore.read`."""
MAX_KEY_LENGTH = 500
"""Maximum length of a key in characters."""

_SEGMENT = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:=+@-]*\Z")
_EXPECTED = (
    "segments of letters, digits and '_.:=+@-' joined by '/', none of which begins with a dot, "
    f"at most {MAX_KEY_LENGTH} characters"
)


@dataclass(frozen=True)
class ArtifactInfo:
    """Size, time and digest of one artifact.

    :param size: in bytes.
    :param modified: when it was written, UTC.
    :param sha256: in hex; None where the store does not keep it.
    """

    key: str
    size: int
    modified: datetime
    sha256: str | None = None


@dataclass(frozen=True)
class Grant:
    """Permission to put or get one artifact without the credentials of the store.

    :param url: ``file://`` where the store is a directory, else a presigned ``https://`` URL.
    :param headers: headers to send with the request.
    :param size: of the file that may be put, in bytes; None: any.
    """

    url: str
    headers: Mapping[str, str] = field(default_factory=dict)
    size: int | None = None


class ArtifactStore(Protocol):
    """Files by key.

    Every method raises `InvalidArgument` for an invalid key and `Unavailable` if the store fails.
    """

    def put(self, key: str, data: bytes, *, if_absent: bool = False, synced: bool = True) -> bool:
        """Write the bytes atomically.

        :param if_absent: do not replace an existing artifact.
        :param synced: whether they survive a power failure from the return on. False only for copies of what is stored
            elsewhere: a directory then leaves the sync, which takes longer than the write, to the operating system.
        :return: whether the bytes were written; False only with ``if_absent``, if the key exists.
        """
        ...

    def put_file(self, key: str, path: Path, *, if_absent: bool = False) -> bool:
        """Write the contents of a file; otherwise as `put`."""
        ...

    def get(self, key: str) -> bytes:
        """Return the bytes.

        :raises NotFound: if there is no such artifact.
        """
        ...

    def read(self, key: str, chunk: int = DEFAULT_CHUNK, *, offset: int = 0) -> Iterator[bytes]:
        """Yield the bytes from ``offset`` on, in chunks of at most ``chunk`` bytes.

        :raises NotFound: at the first chunk, if there is no such artifact.
        """
        ...

    def info(self, key: str) -> ArtifactInfo:
        """Return size, time and digest.

        :raises NotFound: if there is no such artifact.
        """
        ...

    def list(self, prefix: str = "") -> builtins.list[ArtifactInfo]:
        """Return the artifacts whose keys begin with the prefix, in order of keys."""
        ...

    def page(self, prefix: str = "", *, after: str = "", limit: int | None = None) -> builtins.list[ArtifactInfo]:
        """Return a page of `list`, without a listing of the rest.

        Pages are in order of keys in a directory and in AWS S3; some servers have an order of their own.

        :param after: last key of the page before; empty for the first page.
        :param limit: maximum number of artifacts.
        """
        ...

    def folders(self, prefix: str) -> builtins.list[str]:
        """Return the segments that follow a prefix in keys with a further segment, in order: ``a`` of ``sessions/a/b``.

        Their contents are not listed. A directory also returns empty folders.

        :param prefix: with a trailing slash.
        """
        ...

    def exists(self, key: str) -> bool:
        """Return whether the artifact exists."""
        ...

    def delete_prefix(self, prefix: str) -> int:
        """Delete the artifacts whose keys begin with the prefix (not empty); return their number."""
        ...

    def delete_remains(self, before: datetime) -> int:
        """Delete remains of interrupted writes that are older than a time; return their number.

        A bucket has none: a rule of its own deletes unfinished uploads.
        """
        ...

    def grant_put(self, key: str, *, size: int | None = None, writer: str = "") -> Grant:
        """Return a grant to write the key.

        A bucket enforces size and writer by the signature of the URL, which expires soon. A directory's writers are processes
        of its own user, and `transfer.upload` enforces the size.

        :param size: of the file in bytes; None: any.
        :param writer: who writes, ASCII; stored with the object of a bucket.
        """
        ...

    def grant_get(self, key: str) -> Grant:
        """Return a grant to read the key; the key need not exist."""
        ...


def check_key(key: str) -> str:
    """Return the key if it is valid.

    :param key: such as ``sessions/s-1/iterations/1/reward.py``.
    :raises InvalidArgument: if it is empty, absolute, too long, or has a segment that is empty, begins with a
        dot (which rules out ``..``) or holds other characters.
    """
    if not key or len(key) > MAX_KEY_LENGTH or not all(_SEGMENT.match(part) for part in key.split("/")):
        raise InvalidArgument(field="key", value=key, expected=_EXPECTED, reason="INVALID_ARTIFACT_KEY")
    return key


def check_prefix(prefix: str) -> str:
    """Return the prefix if it is valid: empty, a key, a key with a trailing slash, or the beginning of a key.

    :raises InvalidArgument: otherwise.
    """
    if prefix:
        check_key(prefix[:-1] if prefix.endswith("/") else prefix)
    return prefix


def check_folder(prefix: str) -> str:
    """Return the prefix if it is a key with a trailing slash.

    :raises InvalidArgument: otherwise.
    """
    if not check_prefix(prefix).endswith("/"):
        raise InvalidArgument(field="prefix", value=prefix, expected="a prefix with a trailing slash")
    return prefix
