"""The artifact store of one machine: a directory whose files are the artifacts, by key."""

from __future__ import annotations

import builtins
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path

from dressage.artifacts import atomic
from dressage.artifacts.store import DEFAULT_CHUNK, ArtifactInfo, Grant, check_folder, check_key, check_prefix
from dressage.errors import InvalidArgument, NotFound, Unavailable


class DirectoryStore:
    """Artifacts in a directory; see `ArtifactStore` for the methods.

    :param root: created if missing. Grants are ``file://`` URLs below it, for processes of this machine.
    """

    def __init__(self, root: Path) -> None:
        self.root = root.resolve()
        with _map_errors("open", str(self.root)):
            atomic.make_private_folder(self.root)

    def put(self, key: str, data: bytes, *, if_absent: bool = False, synced: bool = True) -> bool:
        """Write the bytes; return whether they were written (see `ArtifactStore.put`)."""
        with _map_errors("write", key):
            return atomic.write_bytes(self._path(key), data, if_absent=if_absent, synced=synced)

    def put_file(self, key: str, path: Path, *, if_absent: bool = False) -> bool:
        """Write the contents of a file; return whether they were written."""
        with _map_errors("write", key):
            return atomic.copy(path, self._path(key), if_absent=if_absent)

    def get(self, key: str) -> bytes:
        """Return the bytes of an artifact."""
        with _map_errors("read", key):
            return self._path(key).read_bytes()

    def read(self, key: str, chunk: int = DEFAULT_CHUNK, *, offset: int = 0) -> Iterator[bytes]:
        """Yield the bytes from ``offset`` on, in chunks."""
        if chunk < 1 or offset < 0:
            raise InvalidArgument(
                field="chunk, offset",
                value=(chunk, offset),
                expected="a chunk of at least 1 byte and an offset of at least 0",
            )
        with _map_errors("read", key), self._path(key).open("rb") as file:
            file.seek(offset)
            while data := file.read(chunk):
                yield data

    def info(self, key: str) -> ArtifactInfo:
        """Return size and time of an artifact."""
        path = self._path(key)
        with _map_errors("read", key):
            if path.is_dir():
                raise FileNotFoundError(key)
            return _info(key, path.stat())

    def list(self, prefix: str = "") -> builtins.list[ArtifactInfo]:
        """Return the artifacts whose keys begin with the prefix, in order of keys."""
        return self.page(prefix)

    def page(self, prefix: str = "", *, after: str = "", limit: int | None = None) -> builtins.list[ArtifactInfo]:
        """Return a page of the artifacts; only folders that can contain one of them are read."""
        check_prefix(prefix)
        with _map_errors("list", prefix):
            return builtins.list(islice(self._walk(prefix.rpartition("/")[0], prefix, after), limit))

    def folders(self, prefix: str) -> builtins.list[str]:
        """Return the names of the folders directly below a prefix (see `ArtifactStore.folders`)."""
        with _map_errors("list", prefix):
            entries = self._entries(check_folder(prefix)[:-1])
            return sorted(name for name, entry in entries if entry.is_dir(follow_symlinks=False))

    def _walk(self, folder: str, prefix: str, after: str) -> Iterator[ArtifactInfo]:
        """Yield artifacts below a folder in order of keys, which is not the order of the names: ``a-b/c`` precedes ``a/b``."""
        entries = []
        for name, entry in self._entries(folder):
            key = f"{folder}/{name}" if folder else name
            entries.append((f"{key}/" if entry.is_dir(follow_symlinks=False) else key, entry))
        for key, entry in sorted(entries, key=lambda pair: pair[0]):
            if key.endswith("/"):
                within = key.startswith(prefix) or prefix.startswith(key)
                if within and (key > after or after.startswith(key)):
                    yield from self._walk(key[:-1], prefix, after)
            elif key.startswith(prefix) and key > after:
                yield from _info_if_present(key, Path(entry.path))

    def _entries(self, folder: str) -> Iterator[tuple[str, os.DirEntry[str]]]:
        """Yield the entries of a folder without temporary files; none if it does not exist."""
        try:
            with os.scandir(self.root / folder) as entries:
                yield from [(entry.name, entry) for entry in entries if not entry.name.startswith(".")]
        except (FileNotFoundError, NotADirectoryError):
            return

    def exists(self, key: str) -> bool:
        """Return whether the artifact exists."""
        return self._path(key).is_file()

    def delete_prefix(self, prefix: str) -> int:
        """Delete the artifacts whose keys begin with the prefix; return their number."""
        if not prefix:
            raise InvalidArgument(field="prefix", value=prefix, expected="a non-empty prefix")
        artifacts = self.list(prefix)
        with _map_errors("delete", prefix):
            for info in artifacts:
                path = self._path(info.key)
                path.unlink(missing_ok=True)
                self._prune(path.parent)
        return len(artifacts)

    def delete_remains(self, before: datetime) -> int:
        """Delete temporary files of writes that a crash interrupted, and empty folders (see `ArtifactStore.delete_remains`)."""
        deleted = 0
        with _map_errors("delete", ""):
            for directory, _, names in os.walk(self.root, topdown=False):
                folder = Path(directory)
                for name in names:
                    if name.startswith(atomic.TEMPORARY_PREFIX):
                        deleted += _unlink_if_older(folder / name, before)
                if folder != self.root and folder.exists() and _time_of(folder.stat()) < before:
                    with suppress(OSError):  # not empty
                        folder.rmdir()
        return deleted

    def grant_put(self, key: str, *, size: int | None = None, writer: str = "") -> Grant:
        """Return a grant to write the key (see `ArtifactStore.grant_put`)."""
        return Grant(url=self._path(key).as_uri(), size=size)

    def grant_get(self, key: str) -> Grant:
        """Return a grant to read the key."""
        return Grant(url=self._path(key).as_uri())

    def _path(self, key: str) -> Path:
        return self.root / check_key(key)

    def _prune(self, folder: Path) -> None:
        while folder != self.root:
            try:
                folder.rmdir()
            except OSError:  # not empty, or created again by a concurrent writer
                return
            folder = folder.parent


def _time_of(status: os.stat_result) -> datetime:
    return datetime.fromtimestamp(status.st_mtime, tz=UTC)


def _unlink_if_older(path: Path, before: datetime) -> bool:
    try:
        if _time_of(path.stat()) >= before:
            return False
        path.unlink()
    except FileNotFoundError:  # its writer finished
        return False
    return True


def _info(key: str, status: os.stat_result) -> ArtifactInfo:
    return ArtifactInfo(key=key, size=status.st_size, modified=_time_of(status))


def _info_if_present(key: str, path: Path) -> list[ArtifactInfo]:
    try:
        return [_info(key, path.stat())]
    except FileNotFoundError:  # deleted between listing and stat
        return []


@contextmanager
def _map_errors(verb: str, key: str) -> Iterator[None]:
    """Map errors of the operating system to domain errors that name the key."""
    try:
        yield
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError) as error:
        raise NotFound(f"no artifact {key!r}", reason="ARTIFACT_NOT_FOUND", metadata={"key": key}) from error
    except OSError as error:
        message = f"cannot {verb} artifact {key!r}: {error.strerror or error}"
        raise Unavailable(message, reason="ARTIFACT_STORE_FAILED", metadata={"key": key}) from error
