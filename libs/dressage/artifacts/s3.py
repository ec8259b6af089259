"""The artifact store of a cluster: objects in an S3 bucket, by key below a prefix."""

from __future__ import annotations

import builtins
import hashlib
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, TypeVar
from xml.etree import ElementTree

from minio.commonconfig import ENABLED, Filter
from minio.deleteobjects import DeleteObject
from minio.error import S3Error
from minio.lifecycleconfig import AbortIncompleteMultipartUpload, LifecycleConfig, Rule
from tenacity import RetryCallState, Retrying, retry_if_exception, stop_after_delay, wait_random_exponential

from dressage.artifacts import s3_errors
from dressage.artifacts.s3_client import S3Client, StoreClock, credentials
from dressage.artifacts.s3_options import S3Options
from dressage.artifacts.store import DEFAULT_CHUNK, ArtifactInfo, Grant, check_folder, check_key, check_prefix
from dressage.errors import Aborted, DressageError, InvalidArgument, NotFound, Unavailable

T = TypeVar("T")

OPEN_SECONDS = 20.0
"""How long `S3Store` waits on opening for a store that cannot be reached."""

_LONGEST_WAIT = 5.0
DIGEST_HEADER = "x-amz-meta-sha256"
"""SHA-256 of the contents, hex."""

WRITER_HEADER = "x-amz-meta-writer"
"""Identifies the writer, so that a conditional write retried after a lost response recognises its own object."""

_MAX_PARTS = 10_000


class S3Store:
    """Artifacts in a bucket; see `ArtifactStore` for the methods.

    Failed requests are retried with exponential backoff for `S3Options.retry_seconds`. Wrong credentials, a missing bucket,
    clock skew and certificate errors are raised at once.

    :param bucket: name of the bucket.
    :param prefix: prefix of all keys in the bucket; may be empty.
    :param check: check access to the bucket, and create it if the options allow it.
    :param sleep: waits between two attempts.
    :param clock: the store's time, from which grants count; None: a new one.
    :raises Unavailable: if the check fails, naming the setting to correct.
    :raises InvalidArgument: if there are no credentials.
    """

    def __init__(
        self,
        bucket: str,
        prefix: str = "",
        *,
        options: S3Options,
        check: bool = True,
        sleep: Callable[[float], None] = time.sleep,
        clock: StoreClock | None = None,
    ) -> None:
        self.bucket = bucket
        self.prefix = f"{prefix}/" if prefix else ""
        self.options = options
        self._sleep = sleep
        provider, clock = credentials(options), clock or StoreClock()
        self._client = S3Client(options, bucket, clock=clock, provider=provider)
        # Presigned URLs are made without a request, so the public address need not be reachable from here.
        self._public = S3Client(options, bucket, clock=clock, provider=provider, endpoint=options.public_endpoint)
        if check:
            self._open()

    def put(self, key: str, data: bytes, *, if_absent: bool = False, synced: bool = True) -> bool:
        """Write the bytes, always synced; return whether they were written (see `ArtifactStore.put`)."""
        return self._write(check_key(key), Contents.of(data), if_absent=if_absent)

    def put_file(self, key: str, path: Path, *, if_absent: bool = False) -> bool:
        """Write the contents of a file; return whether they were written."""
        check_key(key)
        try:
            contents = Contents.of(path)
        except OSError as error:
            message = f"cannot write artifact {key!r}: {path.name}: {error.strerror}"
            raise NotFound(message, reason="UPLOAD_SOURCE_MISSING") from error
        return self._write(key, contents, if_absent=if_absent)

    def get(self, key: str) -> bytes:
        """Return the bytes of an artifact."""
        return b"".join(self.read(key))

    def read(self, key: str, chunk: int = DEFAULT_CHUNK, *, offset: int = 0) -> Iterator[bytes]:
        """Yield the bytes from ``offset`` on, in chunks; with offset 0, the SHA-256 is checked."""
        if chunk < 1 or offset < 0:
            raise InvalidArgument(field="chunk, offset", value=(chunk, offset), expected=">= 1 and >= 0")
        name = self._name(key)
        facts = self._do("read", key, lambda: self._client.minio.stat_object(self.bucket, name))
        expected = facts.metadata.get(DIGEST_HEADER) if facts.metadata and offset == 0 else None
        digest, at, end = hashlib.sha256(), offset, int(facts.size or 0)
        # Read only the version that stat_object returned: a concurrent write would otherwise mix two versions.
        same = {"If-Match": f'"{facts.etag}"'} if facts.etag else {}
        while at < end:
            before = at
            for piece in self._stream(key, at, chunk, same):
                digest.update(piece)
                at += len(piece)
                yield piece
            if at == before:
                raise Unavailable(f"the store returned no data for artifact {key!r}", reason="ARTIFACT_STORE_FAILED")
        if expected is not None and digest.hexdigest() != expected:
            message = f"artifact {key!r} is damaged: its SHA-256 differs from the one recorded when it was written"
            raise Unavailable(message, reason="ARTIFACT_DAMAGED", metadata={"key": key})

    def info(self, key: str) -> ArtifactInfo:
        """Return size and time of an artifact, and its SHA-256 if a store wrote it (not a grant)."""
        name = self._name(key)
        facts = self._do("read", key, lambda: self._client.minio.stat_object(self.bucket, name))
        return _info(key, facts)

    def list(self, prefix: str = "") -> builtins.list[ArtifactInfo]:
        """Return the artifacts whose keys begin with the prefix, in order of keys."""
        return sorted(self.page(prefix), key=lambda info: info.key)

    def page(self, prefix: str = "", *, after: str = "", limit: int | None = None) -> builtins.list[ArtifactInfo]:
        """Return a page of the artifacts in the store's order; it continues after a key, with a thousand in a request."""
        check_prefix(prefix)
        start = self.prefix + after if after else None

        def collect() -> builtins.list[ArtifactInfo]:
            objects = self._client.minio.list_objects(
                self.bucket, prefix=self.prefix + prefix, recursive=True, start_after=start
            )
            keyed = ((str(entry.object_name)[len(self.prefix) :], entry) for entry in objects)
            # Skip objects of other programs, whose names are no keys.
            infos = (_info(key, entry) for key, entry in keyed if _is_key(key))
            return builtins.list(islice(infos, limit))

        return self._do("list", prefix, collect)

    def folders(self, prefix: str) -> builtins.list[str]:
        """Return the segments that follow a prefix (see `ArtifactStore.folders`)."""
        whole = self.prefix + check_folder(prefix)

        def collect() -> builtins.list[str]:
            entries = self._client.minio.list_objects(self.bucket, prefix=whole)
            names = (str(entry.object_name)[len(whole) : -1] for entry in entries if entry.is_dir)
            return sorted(name for name in names if _is_key(name))

        return self._do("list", prefix, collect)

    def exists(self, key: str) -> bool:
        """Return whether the artifact exists."""
        try:
            self.info(key)
        except NotFound:
            return False
        return True

    def delete_prefix(self, prefix: str) -> int:
        """Delete the artifacts whose keys begin with the prefix, a thousand a request; return their number."""
        if not prefix:
            raise InvalidArgument(field="prefix", value=prefix, expected="a prefix that is not empty")
        names = [self._name(info.key) for info in self.list(prefix)]

        def remove() -> None:
            errors = list(self._client.minio.remove_objects(self.bucket, [DeleteObject(name) for name in names]))
            if errors:
                message = f"{len(errors)} artifacts were not deleted; the first error is {errors[0].code}"
                raise Unavailable(message, reason="ARTIFACT_STORE_FAILED")

        if names:
            self._do("delete", prefix, remove)
        return len(names)

    def delete_remains(self, before: datetime) -> int:
        """Return 0: see `S3Options.abort_incomplete_days`."""
        return 0

    def grant_put(self, key: str, *, size: int | None = None, writer: str = "") -> Grant:
        """Return a grant to write the key: a presigned URL, whose signature includes size and writer.

        It cannot be revoked, and so lives for the start of one upload.
        """
        headers = {"Content-Length": str(size)} if size is not None else {}
        headers |= {WRITER_HEADER: writer} if writer else {}
        url = self._presign("PUT", key, self.options.put_grant_seconds, headers)
        return Grant(url=url, headers=headers, size=size)

    def grant_get(self, key: str) -> Grant:
        """Return a grant to read the key: a presigned URL."""
        return Grant(url=self._presign("GET", key, self.options.grant_seconds, {}))

    def _presign(self, method: str, key: str, seconds: int, headers: dict[str, str]) -> str:
        name = self._name(key)
        return self._do("grant", key, lambda: self._public.presign(method, name, headers=headers, seconds=seconds))

    def _name(self, key: str) -> str:
        return self.prefix + check_key(key)

    def _write(self, key: str, contents: Contents, *, if_absent: bool) -> bool:
        name, writer, attempts = self._name(key), secrets.token_hex(8), 0

        def attempt() -> bool:
            nonlocal attempts
            attempts += 1
            try:
                part_bytes = self.options.part_bytes
                write(self._client, name, contents, part_bytes=part_bytes, writer=writer, if_absent=if_absent)
            except S3Error as error:
                if not if_absent or not s3_errors.precondition_failed(error):
                    raise
                # If an earlier response was lost, the existing object may be the one that this call wrote.
                return attempts > 1 and self._writer(name) == writer
            return True

        return self._do("write", key, attempt)

    def _writer(self, name: str) -> str | None:
        metadata = self._client.minio.stat_object(self.bucket, name).metadata
        return metadata.get(WRITER_HEADER) if metadata else None

    def _stream(self, key: str, offset: int, chunk: int, same: dict[str, str]) -> Iterator[bytes]:
        """Yield bytes until the end or until the connection breaks, after which the caller continues at that offset."""
        name = self._name(key)

        def request() -> Any:
            return self._client.minio.get_object(self.bucket, name, offset=offset, request_headers=dict(same))

        response = self._do("read", key, request)
        received = False
        try:
            for piece in response.stream(chunk):
                received = True
                yield piece
        except s3_errors.FAILURES as error:
            if not received or not s3_errors.transient(error):
                raise s3_errors.domain_error("read", key, error, self.options, self.bucket) from None
        finally:
            response.close()
            response.release_conn()

    def _do(self, verb: str, key: str, work: Callable[[], T], *, seconds: float | None = None) -> T:
        """Run a request, retry while its error is transient, and map the last error to a domain error."""
        allowed = self.options.retry_seconds if seconds is None else seconds
        retrying = Retrying(
            retry=retry_if_exception(s3_errors.transient),
            stop=stop_after_delay(allowed),
            wait=wait_random_exponential(multiplier=0.2, max=_LONGEST_WAIT),
            sleep=self._sleep,
            retry_error_callback=_reraise,
        )
        try:
            return retrying(work)
        except DressageError:
            raise
        except s3_errors.FAILURES as error:
            if s3_errors.precondition_failed(error):
                message = f"artifact {key!r} was replaced while it was read; read it again"
                raise Unavailable(message, reason="ARTIFACT_CHANGED", metadata={"key": key}) from None
            raise s3_errors.domain_error(verb, key, error, self.options, self.bucket) from None

    def _open(self) -> None:
        seconds = min(OPEN_SECONDS, self.options.retry_seconds)
        try:
            # A listing, not a HEAD, because only its response has a body with the error code.
            self._do(
                "open",
                "",
                lambda: next(self._client.minio.list_objects(self.bucket, self.prefix), None),
                seconds=seconds,
            )
        except Unavailable as error:
            if error.reason != "S3_BUCKET_MISSING" or not self.options.create_bucket:
                raise
            self._do("open", "", self._make_bucket, seconds=seconds)

    def _make_bucket(self) -> None:
        try:
            self._client.minio.make_bucket(self.bucket, location=self.options.region)
        except S3Error as error:
            if error.code not in ("BucketAlreadyOwnedByYou", "BucketAlreadyExists"):  # another service was first
                raise
        days = self.options.abort_incomplete_days
        if days:
            rule = Rule(
                ENABLED,
                rule_filter=Filter(prefix=""),
                rule_id="dressage-unfinished-uploads",
                abort_incomplete_multipart_upload=AbortIncompleteMultipartUpload(days_after_initiation=days),
            )
            try:
                self._client.minio.set_bucket_lifecycle(self.bucket, LifecycleConfig([rule]))
            except S3Error as error:
                # Some stores do not support this rule (MinIO drops unfinished uploads by itself); the bucket works without it.
                if error.code not in ("NotImplemented", "MalformedXML", "InvalidArgument", "MethodNotAllowed"):
                    raise


def _reraise(state: RetryCallState) -> Any:
    assert state.outcome is not None
    return state.outcome.result()


def _is_key(key: str) -> bool:
    try:
        check_key(key)
    except InvalidArgument:
        return False
    return True


def _info(key: str, facts: Any) -> ArtifactInfo:
    digest = facts.metadata.get(DIGEST_HEADER) if facts.metadata else None
    return ArtifactInfo(key=key, size=int(facts.size or 0), modified=facts.last_modified, sha256=digest)


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


def write(client: S3Client, name: str, contents: Contents, *, part_bytes: int, writer: str, if_absent: bool) -> None:
    """Write an object atomically: in one request, or in parts if it is large.

    :param part_bytes: larger contents are uploaded in parts.
    :raises S3Error: with code ``PreconditionFailed`` if ``if_absent`` is set and the object exists.
    :raises Aborted: if the file changed while it was read.
    """
    headers = {DIGEST_HEADER: contents.sha256, WRITER_HEADER: writer, "Content-Type": "application/octet-stream"}
    # The store decides who is first, as a hard link does in a folder (decision 0016).
    condition = {"If-None-Match": "*"} if if_absent else {}
    if contents.size <= part_bytes:
        data = b"".join(contents.parts(part_bytes))
        _check(contents, hashlib.sha256(data))
        client.send("PUT", name, data, headers={**headers, **condition})
        return
    size = max(part_bytes, -(-contents.size // _MAX_PARTS))
    response = client.send("POST", name, headers=headers, query={"uploads": ""})
    upload = {"uploadId": ElementTree.fromstring(response.data).findtext("{*}UploadId", "")}
    try:
        total, completion = hashlib.sha256(), ElementTree.Element("CompleteMultipartUpload")
        for number, data in enumerate(contents.parts(size), start=1):
            total.update(data)
            response = client.send("PUT", name, data, query={"partNumber": str(number), **upload})
            part = ElementTree.SubElement(completion, "Part")
            ElementTree.SubElement(part, "PartNumber").text = str(number)
            ElementTree.SubElement(part, "ETag").text = response.headers["ETag"]
        _check(contents, total)
        xml = {"Content-Type": "application/xml"}
        client.send("POST", name, ElementTree.tostring(completion), headers={**xml, **condition}, query=upload)
    except BaseException:
        # Abort the upload, because its parts use space until the bucket's lifecycle drops them.
        with suppress(*s3_errors.FAILURES):
            client.send("DELETE", name, query=upload)
        raise


def _check(contents: Contents, digest: hashlib._Hash) -> None:
    if digest.hexdigest() != contents.sha256:
        raise Aborted("the file changed while it was uploaded", reason="ARTIFACT_SOURCE_CHANGED")
