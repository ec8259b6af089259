"""Uploads and downloads with a grant, for processes without the credentials of the store."""

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
"""Timeout of a socket operation in seconds."""

CA_VARIABLE = "DRESSAGE_S3_CA_FILE"
"""Variable with the PEM file of the certificate authority of the store, where it is not one of the system's."""

_NOT_FOUND = 404
_DENIED = (401, 403)
_CHUNK = 1 << 20
_MD5 = re.compile(r"[0-9a-f]{32}\Z")
_SHA256_HEADER = "x-amz-meta-sha256"


def upload(grant: Grant, path: Path, *, timeout: float = TIMEOUT) -> None:
    """Upload a file with a grant.

    :param timeout: timeout of a socket operation in seconds.
    :raises NotFound: if the file is missing.
    :raises Unavailable: if the store cannot be reached or refuses.
    """
    if not path.is_file():
        raise NotFound(f"no file {path.name!r} to upload", reason="UPLOAD_SOURCE_MISSING")
    if grant.size is not None and path.stat().st_size != grant.size:
        message = f"{path.name} has {path.stat().st_size} bytes, but the grant is for {grant.size}; ask for a new one"
        raise PermissionDenied(message, reason="GRANT_REFUSED")
    target = _local_path(grant)
    if target is not None:
        try:
            atomic.copy(path, target, size=grant.size)
        except atomic.SizeDiffers:
            message = f"{path.name} changed while it was uploaded; the grant is for {grant.size} bytes"
            raise PermissionDenied(message, reason="GRANT_REFUSED") from None
        except OSError as error:
            raise _unavailable("upload", path.name, error) from error
        return
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False))
        size = file.tell()
        file.seek(0)
        # The store refuses contents that were damaged in transit; a file that grew meanwhile fails the same check.
        check = base64.b64encode(digest.digest()).decode()
        headers = {**grant.headers, "Content-Length": str(size), "Content-MD5": check}
        request = urllib.request.Request(grant.url, data=file, headers=headers, method="PUT")
        with _open(request, "upload", path.name, timeout) as response:
            content_md5 = _content_md5(response)
    if content_md5 is not None and content_md5 != digest.hexdigest():
        raise _unavailable("upload", path.name, "the stored contents differ from those sent")


def download(grant: Grant, path: Path, *, timeout: float = TIMEOUT) -> None:
    """Download the granted file and write it to ``path`` atomically.

    :raises NotFound: if the artifact is missing.
    :raises Unavailable: if the store cannot be reached or refuses.
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
    """Write the body and check its length and the digests in the response headers."""
    md5, sha256, size = hashlib.md5(usedforsecurity=False), hashlib.sha256(), 0
    while data := response.read(_CHUNK):
        md5.update(data)
        sha256.update(data)
        size += len(data)
        file.write(data)
    length = response.headers.get("Content-Length")
    if length is not None and size != int(length):
        raise _unavailable("download", name, f"the connection broke after {size} of {length} bytes")
    digests = {_content_md5(response): md5.hexdigest(), response.headers.get(_SHA256_HEADER): sha256.hexdigest()}
    if any(expected is not None and expected != received for expected, received in digests.items()):
        raise _unavailable("download", name, "the contents received differ from those stored")


def _content_md5(response: http.client.HTTPResponse) -> str | None:
    """Return the MD5 in the ETag; None where the ETag is another value (uploaded in parts, or encrypted by the store)."""
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
