"""The artifact store: files of sessions by key, in a directory on one machine or in S3 on a cluster.

Readers never see a partial file: every write goes to a temporary name and is renamed (or linked) into place.
Keys are relative POSIX paths with a restricted alphabet; `check_key` refuses all others before any file access.
"""

from dressage.artifacts.directory import DirectoryStore
from dressage.artifacts.opening import open_store
from dressage.artifacts.store import ArtifactInfo, ArtifactStore, Grant, check_key, check_prefix
from dressage.artifacts.transfer import download, upload

__all__ = [
    "ArtifactInfo",
    "ArtifactStore",
    "DirectoryStore",
    "Grant",
    "check_key",
    "check_prefix",
    "download",
    "open_store",
    "upload",
]
