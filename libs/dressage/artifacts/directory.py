"""The artifact store of one machine: a directory whose files are the artifacts, by key."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from dressage.artifacts import atomic
from dressage.artifacts.keys import check_key, check_prefix
from dressage.artifacts.store import DEFAULT_CHUNK, ArtifactInfo, Grant
from dressage.errors import InvalidArgument, NotFound, Unavailable


class DirectoryStore:
    """Artifacts in a directory; see `ArtifactStore` for the methods.

    :param root: made if it is missing. Grants are ``file://`` URLs below it, for processes of this machine.
    """

    def __init__(self, root: Path) -> None:
        self.root = root.resolve()
        with _told("open", str(self.root)):
            self.root.mkdir(parents=True, exist_ok=True)

    def put(self, key: str, data: bytes, *, if_absent: bool = False) -> bool:
        """Writes the bytes; whether they were written (see `ArtifactStore.put`)."""
        with _told("write", key):
            return atomic.write_bytes(self._path(key), data, if_absent=if_absent)

    def put_file(self, key: str, path: Path, *, if_absent: bool = False) -> bool:
        """Writes a file's contents; whether they were written."""
        with _told("write", key):
            return atomic.copy(path, self._path(key), if_absent=if_absent)

    def get(self, key: str) -> bytes:
        """The bytes of an artifact."""
        with _told("read", key):
            return self._path(key).read_bytes()

    def read(self, key: str, chunk: int = DEFAULT_CHUNK, *, offset: int = 0) -> Iterator[bytes]:
        """The bytes from ``offset`` on, in chunks."""
        if chunk < 1 or offset < 0:
            raise InvalidArgument(field="chunk, offset", value=(chunk, offset), expected=">= 1 and >= 0")
        with _told("read", key), self._path(key).open("rb") as file:
            file.seek(offset)
            while data := file.read(chunk):
                yield data

    def info(self, key: str) -> ArtifactInfo:
        """An artifact's facts."""
        path = self._path(key)
        with _told("read", key):
            if path.is_dir():
                raise FileNotFoundError(key)
            return _info(key, path.stat())

    def list(self, prefix: str = "") -> list[ArtifactInfo]:
        """The artifacts whose keys begin with the prefix, in order of keys."""
        check_prefix(prefix)
        folder = self.root / prefix.rpartition("/")[0]
        with _told("list", prefix):
            found = []
            for directory, _, names in os.walk(folder):
                base = Path(directory).relative_to(self.root).as_posix()
                for name in names:
                    key = name if base == "." else f"{base}/{name}"
                    if not name.startswith(".") and key.startswith(prefix):
                        found.extend(_info_if_there(key, Path(directory) / name))
            return sorted(found, key=lambda info: info.key)

    def exists(self, key: str) -> bool:
        """Whether there is such an artifact."""
        return self._path(key).is_file()

    def delete_prefix(self, prefix: str) -> int:
        """Deletes the artifacts whose keys begin with the prefix; how many they were."""
        if not prefix:
            raise InvalidArgument(field="prefix", value=prefix, expected="a prefix that is not empty")
        doomed = self.list(prefix)
        with _told("delete", prefix):
            for info in doomed:
                path = self._path(info.key)
                path.unlink(missing_ok=True)
                self._prune(path.parent)
        return len(doomed)

    def grant_put(self, key: str) -> Grant:
        """Leave to write that key."""
        return Grant(url=self._path(key).as_uri())

    def grant_get(self, key: str) -> Grant:
        """Leave to read that key."""
        return Grant(url=self._path(key).as_uri())

    def _path(self, key: str) -> Path:
        return self.root / check_key(key)

    def _prune(self, folder: Path) -> None:
        while folder != self.root:
            try:
                folder.rmdir()
            except OSError:  # not empty, or a concurrent writer made it anew: it stays
                return
            folder = folder.parent


def _info(key: str, status: os.stat_result) -> ArtifactInfo:
    modified = datetime.fromtimestamp(status.st_mtime, tz=UTC)
    return ArtifactInfo(key=key, size=status.st_size, modified=modified)


def _info_if_there(key: str, path: Path) -> list[ArtifactInfo]:
    try:
        return [_info(key, path.stat())]
    except FileNotFoundError:  # deleted between the listing and the look
        return []


@contextmanager
def _told(verb: str, key: str) -> Iterator[None]:
    """Maps the operating system's errors to ours, naming the key."""
    try:
        yield
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError) as error:
        raise NotFound(f"no artifact {key!r}", reason="ARTIFACT_NOT_FOUND", metadata={"key": key}) from error
    except OSError as error:
        message = f"cannot {verb} artifact {key!r}: {error.strerror or error}"
        raise Unavailable(message, reason="ARTIFACT_STORE_FAILED", metadata={"key": key}) from error
