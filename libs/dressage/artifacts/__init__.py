"""Where sessions keep their files: one small protocol, a directory behind it on one machine, S3 on a cluster.

Readers never see half a file: every write goes to a temporary name and is renamed (or linked) into place.
Keys are relative POSIX paths of a narrow alphabet; `check_key` refuses all else before a file system sees it.
"""

from dressage.artifacts.directory import DirectoryStore
from dressage.artifacts.keys import check_key, check_prefix
from dressage.artifacts.opening import open_store
from dressage.artifacts.store import ArtifactInfo, ArtifactStore, Grant
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
