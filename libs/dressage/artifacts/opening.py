"""Opens the artifact store that a setting names."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from dressage.artifacts.directory import DirectoryStore
from dressage.artifacts.store import ArtifactStore, check_key
from dressage.errors import FailedPrecondition, InvalidArgument

if TYPE_CHECKING:
    from dressage.artifacts.s3_options import S3Options

_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]\Z")
_EXPECTED = "a path, file:///path or s3://bucket/prefix (a bucket of 3-63 lower-case letters, digits, '-' and '.')"


def open_store(url: str, *, s3: S3Options | None = None, check: bool = True) -> ArtifactStore:
    """Return the store that a setting names.

    :param url: a path, ``file:///path`` or ``s3://bucket/prefix``.
    :param s3: options of an S3 store; from ``DRESSAGE_S3_*`` if None.
    :param check: check that the bucket exists.
    :raises InvalidArgument: if it is empty or has another scheme, or a setting of the S3 store is invalid.
    :raises Unavailable: if the S3 store cannot be used, naming the setting to correct.
    :raises FailedPrecondition: when the S3 client is not installed.
    """
    parts = urlsplit(url)
    if parts.scheme == "" and url:
        return DirectoryStore(Path(url).expanduser())
    if parts.scheme == "file" and parts.netloc in ("", "localhost") and parts.path:
        return DirectoryStore(Path(unquote(parts.path)))
    if parts.scheme == "s3" and _BUCKET.match(parts.netloc) and not parts.query and not parts.fragment:
        return _open_s3(parts.netloc, parts.path.strip("/"), s3, check=check)
    raise InvalidArgument(field="store_url", value=url, expected=_EXPECTED)


def _open_s3(bucket: str, prefix: str, options: S3Options | None, *, check: bool) -> ArtifactStore:
    if prefix:
        check_key(prefix)
    try:
        from dressage.artifacts.s3 import S3Store
    except ModuleNotFoundError as error:
        message = f"an s3:// store needs the package {error.name!r}: install dressage[s3]"
        raise FailedPrecondition(message, reason="EXTRA_MISSING") from error
    return S3Store(bucket, prefix, options=options or s3_options(), check=check)


def s3_options() -> S3Options:
    """Return the options from the environment and the mounted file.

    :raises InvalidArgument: naming an invalid option; the message has no secret.
    """
    from pydantic import ValidationError

    from dressage.artifacts.s3_options import S3Options

    try:
        return S3Options()
    except ValidationError as error:
        problem = error.errors(include_input=False)[0]
        field = "DRESSAGE_S3_" + ".".join(str(part) for part in problem["loc"]).upper()
        raise InvalidArgument(f"{field}: {problem['msg']}", field=field) from None
