"""Using a grant: how a process without the store's credentials puts and gets files."""

from __future__ import annotations

import http.client
import shutil
import urllib.error
import urllib.request
from pathlib import Path
from typing import BinaryIO
from urllib.parse import unquote, urlsplit

from dressage.artifacts import atomic
from dressage.artifacts.store import Grant
from dressage.errors import InvalidArgument, NotFound, PermissionDenied, Unavailable

TIMEOUT = 60.0
"""Seconds that a socket may stay silent."""

_NOT_FOUND = 404
_DENIED = (401, 403)


def upload(grant: Grant, path: Path, *, timeout: float = TIMEOUT) -> None:
    """Puts a file where the grant says.

    :param timeout: seconds that the other side may stay silent.
    :raises NotFound: when the file is missing.
    :raises Unavailable: when the store cannot be reached or refuses.
    """
    if not path.is_file():
        raise NotFound(f"no file {path.name!r} to upload", reason="UPLOAD_SOURCE_MISSING")
    target = _local_path(grant)
    if target is not None:
        try:
            atomic.copy(path, target)
        except OSError as error:
            raise _unavailable("upload", path.name, error) from error
        return
    with path.open("rb") as file:
        headers = {**grant.headers, "Content-Length": str(path.stat().st_size)}
        request = urllib.request.Request(grant.url, data=file, headers=headers, method="PUT")
        with _open(request, "upload", path.name, timeout):
            pass


def download(grant: Grant, path: Path, *, timeout: float = TIMEOUT) -> None:
    """Gets the granted file and writes it to ``path``, whole or not at all.

    :raises NotFound: when the artifact is missing.
    :raises Unavailable: when the store cannot be reached or refuses.
    """
    source = _local_path(grant)
    if source is not None:
        if not source.is_file():
            raise NotFound(f"no artifact {source.name!r}", reason="ARTIFACT_NOT_FOUND")
        try:
            atomic.copy(source, path)
        except OSError as error:
            raise _unavailable("download", path.name, error) from error
        return
    request = urllib.request.Request(grant.url, headers=dict(grant.headers), method="GET")
    with _open(request, "download", path.name, timeout) as response:

        def fill(file: BinaryIO) -> None:
            shutil.copyfileobj(response, file, length=1 << 20)

        try:
            atomic.write(path, fill)
        except (OSError, http.client.HTTPException) as error:
            raise _unavailable("download", path.name, error) from error


def _local_path(grant: Grant) -> Path | None:
    parts = urlsplit(grant.url)
    if parts.scheme == "file":
        return Path(unquote(parts.path))
    if parts.scheme in ("http", "https"):
        return None
    raise InvalidArgument(field="grant.url", value=parts.scheme, expected="a file, http or https URL")


def _open(request: urllib.request.Request, verb: str, name: str, timeout: float) -> http.client.HTTPResponse:
    try:
        response: http.client.HTTPResponse = urllib.request.urlopen(request, timeout=timeout)
        return response
    except urllib.error.HTTPError as error:
        # The URL carries a signature, so no message shows it.
        if error.code == _NOT_FOUND:
            raise NotFound(f"cannot {verb} {name!r}: no such artifact", reason="ARTIFACT_NOT_FOUND") from None
        if error.code in _DENIED:
            message = f"cannot {verb} {name!r}: the grant was refused (HTTP {error.code}); ask for a new one"
            raise PermissionDenied(message, reason="GRANT_REFUSED") from None
        raise _unavailable(verb, name, f"HTTP {error.code}") from None
    except (OSError, http.client.HTTPException) as error:
        raise _unavailable(verb, name, error) from None


def _unavailable(verb: str, name: str, error: object) -> Unavailable:
    return Unavailable(f"cannot {verb} {name!r}: {error}", reason="ARTIFACT_STORE_FAILED")
