"""Writes one object: in one request, or in parts if it is large; conditionally on request.

The client's `put_object` has no ``If-None-Match``, so this module uses its lower-level requests.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO
from xml.etree import ElementTree

from minio import Minio

from dressage.artifacts.s3_errors import FAILURES
from dressage.errors import Aborted

DIGEST_HEADER = "x-amz-meta-sha256"
"""SHA-256 of the contents, hex."""

WRITER_HEADER = "x-amz-meta-writer"
"""Identifies the writer, so that a conditional write retried after a lost response recognises its own object."""

_MAX_PARTS = 10_000
_IF_ABSENT = {"If-None-Match": "*"}


@dataclass(frozen=True)
class Contents:
    """Contents to write.

    :param source: the bytes, or a file with them.
    :param size: in bytes.
    :param sha256: of the contents, hex.
    """

    source: bytes | Path
    size: int
    sha256: str

    @classmethod
    def of(cls, source: bytes | Path) -> Contents:
        """Read the source once.

        :raises OSError: if the file cannot be read.
        """
        if isinstance(source, bytes):
            return cls(source, len(source), hashlib.sha256(source).hexdigest())
        with source.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
            return cls(source, file.tell(), digest)

    def parts(self, size: int) -> Iterator[bytes]:
        """Yield the contents in parts of ``size`` bytes, the last one shorter; at least one."""
        if isinstance(self.source, bytes):
            for start in range(0, max(1, len(self.source)), size):
                yield self.source[start : start + size]
            return
        with self.source.open("rb") as file:
            yield from _parts(file, size)


def _parts(file: BinaryIO, size: int) -> Iterator[bytes]:
    part = file.read(size)
    yield part
    while part := file.read(size):
        yield part


def write(
    client: Minio, bucket: str, name: str, contents: Contents, *, part_bytes: int, writer: str, if_absent: bool
) -> None:
    """Write an object atomically.

    The store verifies each request against its signed SHA-256 (plain HTTP) or its Content-MD5 (TLS).

    :param part_bytes: larger contents are uploaded in parts.
    :raises S3Error: with code ``PreconditionFailed`` if ``if_absent`` is set and the object exists.
    :raises Aborted: if the file changed while it was read.
    """
    headers = {DIGEST_HEADER: contents.sha256, WRITER_HEADER: writer, "Content-Type": "application/octet-stream"}
    condition = dict(_IF_ABSENT) if if_absent else {}
    if contents.size <= part_bytes:
        data = b"".join(contents.parts(part_bytes))
        _check(contents, hashlib.sha256(data))
        client._put_object(bucket, name, data, {**headers, **condition})
        return
    size = max(part_bytes, -(-contents.size // _MAX_PARTS))
    upload = client._create_multipart_upload(bucket, name, dict(headers))
    try:
        total, tags = hashlib.sha256(), []
        for number, part in enumerate(contents.parts(size), start=1):
            total.update(part)
            tags.append(client._upload_part(bucket, name, part, None, upload, number))
        _check(contents, total)
        _complete(client, bucket, name, upload, tags, condition)
    except BaseException:
        # Abort the upload, because its parts use space until the bucket's lifecycle drops them.
        with suppress(*FAILURES):
            client._abort_multipart_upload(bucket, name, upload)
        raise


def _check(contents: Contents, read: hashlib._Hash) -> None:
    if read.hexdigest() != contents.sha256:
        raise Aborted("the file changed while it was uploaded", reason="ARTIFACT_SOURCE_CHANGED")


def _complete(client: Minio, bucket: str, name: str, upload: str, tags: list[str], condition: dict[str, str]) -> None:
    root = ElementTree.Element("CompleteMultipartUpload")
    for number, tag in enumerate(tags, start=1):
        part = ElementTree.SubElement(root, "Part")
        ElementTree.SubElement(part, "PartNumber").text = str(number)
        ElementTree.SubElement(part, "ETag").text = f'"{tag}"'
    headers: dict[str, Any] = {"Content-Type": "application/xml", **condition}
    query: dict[str, Any] = {"uploadId": upload}
    client._execute("POST", bucket, name, body=ElementTree.tostring(root), headers=headers, query_params=query)
