"""Using a grant: how a process without the store's credentials puts and gets files."""

from __future__ import annotations

import base64
import functools
import hashlib
import http.client
import os
import re
import ssl
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

CA_VARIABLE = "DRESSAGE_S3_CA_FILE"
"""Names the PEM file of the authority that signed the store's certificate, where the system does not know it."""

_NOT_FOUND = 404
_DENIED = (401, 403)
_CHUNK = 1 << 20
_MD5 = re.compile(r"[0-9a-f]{32}\Z")
_SHA256_HEADER = "x-amz-meta-sha256"


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
        digest = hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False))
        size = file.tell()
        file.seek(0)
        # The store refuses contents that were damaged on their way; a file that grew meanwhile fails the same check.
        check = base64.b64encode(digest.digest()).decode()
        headers = {**grant.headers, "Content-Length": str(size), "Content-MD5": check}
        request = urllib.request.Request(grant.url, data=file, headers=headers, method="PUT")
        with _open(request, "upload", path.name, timeout) as response:
            stored = _content_md5(response)
    if stored is not None and stored != digest.hexdigest():
        raise _unavailable("upload", path.name, "the store has other contents than were sent")


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
            _receive(response, file, path.name)

        try:
            atomic.write(path, fill)
        except (OSError, http.client.HTTPException) as error:
            raise _unavailable("download", path.name, error) from error


def _receive(response: http.client.HTTPResponse, file: BinaryIO, name: str) -> None:
    """Writes the body and checks its length and, where the store told them, its digests."""
    md5, sha256, size = hashlib.md5(usedforsecurity=False), hashlib.sha256(), 0
    while data := response.read(_CHUNK):
        md5.update(data)
        sha256.update(data)
        size += len(data)
        file.write(data)
    length = response.headers.get("Content-Length")
    if length is not None and size != int(length):
        raise _unavailable("download", name, f"the connection broke after {size} of {length} bytes")
    told = {_content_md5(response): md5.hexdigest(), response.headers.get(_SHA256_HEADER): sha256.hexdigest()}
    if any(said is not None and said != seen for said, seen in told.items()):
        raise _unavailable("download", name, "what arrived is not what was stored")


def _content_md5(response: http.client.HTTPResponse) -> str | None:
    """The contents' MD5 by the ETag; None where the ETag is none (sent in parts, or encrypted with a key of the store)."""
    encrypted = response.headers.get("x-amz-server-side-encryption", "AES256") != "AES256"
    tag = response.headers.get("ETag", "").strip('"').lower()
    return tag if _MD5.match(tag) and not encrypted else None


@functools.cache
def _context(authority: str | None) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=authority)


def _local_path(grant: Grant) -> Path | None:
    parts = urlsplit(grant.url)
    if parts.scheme == "file":
        return Path(unquote(parts.path))
    if parts.scheme in ("http", "https"):
        return None
    raise InvalidArgument(field="grant.url", value=parts.scheme, expected="a file, http or https URL")


def _open(request: urllib.request.Request, verb: str, name: str, timeout: float) -> http.client.HTTPResponse:
    try:
        context = _context(os.environ.get(CA_VARIABLE) or None) if request.type == "https" else None
        response: http.client.HTTPResponse = urllib.request.urlopen(request, timeout=timeout, context=context)
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
