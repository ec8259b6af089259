"""From a setting to a store."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote, urlsplit

from dressage.artifacts.directory import DirectoryStore
from dressage.artifacts.store import ArtifactStore
from dressage.errors import InvalidArgument


def open_store(url: str) -> ArtifactStore:
    """The store that a setting names.

    :param url: a path, or ``file:///path``. ``s3://bucket/prefix`` is reserved and not available yet.
    :raises InvalidArgument: when it is empty or of another scheme.
    """
    parts = urlsplit(url)
    if parts.scheme == "" and url:
        return DirectoryStore(Path(url).expanduser())
    if parts.scheme == "file" and parts.netloc in ("", "localhost") and parts.path:
        return DirectoryStore(Path(unquote(parts.path)))
    expected = "a path or file:///path (s3:// is not available yet)"
    raise InvalidArgument(field="store_url", value=url, expected=expected)
