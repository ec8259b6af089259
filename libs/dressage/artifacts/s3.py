"""The artifact store of a cluster: objects of a bucket in any S3 store, by key below a prefix."""

from __future__ import annotations

import hashlib
import secrets
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

from minio import Minio
from minio.commonconfig import ENABLED, Filter
from minio.deleteobjects import DeleteObject
from minio.error import S3Error
from minio.lifecycleconfig import AbortIncompleteMultipartUpload, LifecycleConfig, Rule
from tenacity import RetryCallState, Retrying, retry_if_exception, stop_after_delay, wait_random_exponential

from dressage.artifacts import s3_errors, s3_upload
from dressage.artifacts.keys import check_key, check_prefix
from dressage.artifacts.s3_client import credentials, make_client
from dressage.artifacts.s3_options import S3Options
from dressage.artifacts.store import DEFAULT_CHUNK, ArtifactInfo, Grant
from dressage.errors import DressageError, InvalidArgument, NotFound, Unavailable

T = TypeVar("T")

OPEN_SECONDS = 20.0
"""How long `S3Store` waits for a store that cannot be reached when it is opened."""

_LONGEST_WAIT = 5.0


class S3Store:
    """Artifacts in a bucket; see `ArtifactStore` for the methods.

    A request that the store could not answer is repeated, with growing waits, for `S3Options.retry_seconds`; wrong
    credentials, a missing bucket, wrong clocks and certificates are told at once.

    :param bucket: its name.
    :param prefix: of all keys in the bucket; may be empty.
    :param check: look whether the bucket is there and may be used, and make it if the options allow it.
    :param sleep: waits between two tries.
    :raises Unavailable: when the check fails, naming the setting to correct.
    :raises InvalidArgument: when there are no credentials.
    """

    def __init__(
        self,
        bucket: str,
        prefix: str = "",
        *,
        options: S3Options,
        check: bool = True,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.bucket = bucket
        self.prefix = f"{prefix}/" if prefix else ""
        self.options = options
        self._sleep = sleep
        provider = credentials(options)
        self._client: Minio = make_client(options, provider=provider)
        # Presigned URLs are made without a request, so the public address need not be reachable from here.
        self._public: Minio = make_client(options, endpoint=options.public_endpoint, provider=provider)
        if check:
            self._open()

    def put(self, key: str, data: bytes, *, if_absent: bool = False) -> bool:
        """Writes the bytes; whether they were written (see `ArtifactStore.put`)."""
        return self._write(check_key(key), s3_upload.Contents.of(data), if_absent=if_absent)

    def put_file(self, key: str, path: Path, *, if_absent: bool = False) -> bool:
        """Writes a file's contents; whether they were written."""
        check_key(key)
        try:
            contents = s3_upload.Contents.of(path)
        except OSError as error:
            message = f"cannot write artifact {key!r}: {path.name}: {error.strerror}"
            raise NotFound(message, reason="UPLOAD_SOURCE_MISSING") from error
        return self._write(key, contents, if_absent=if_absent)

    def get(self, key: str) -> bytes:
        """The bytes of an artifact."""
        return b"".join(self.read(key))

    def read(self, key: str, chunk: int = DEFAULT_CHUNK, *, offset: int = 0) -> Iterator[bytes]:
        """The bytes from ``offset`` on, in chunks; what is read from the beginning is checked against its SHA-256."""
        if chunk < 1 or offset < 0:
            raise InvalidArgument(field="chunk, offset", value=(chunk, offset), expected=">= 1 and >= 0")
        name = self._name(key)
        facts = self._do("read", key, lambda: self._client.stat_object(self.bucket, name))
        expected = facts.metadata.get(s3_upload.DIGEST_HEADER) if facts.metadata and offset == 0 else None
        digest, at, end = hashlib.sha256(), offset, int(facts.size or 0)
        # Only the object that was looked at is read: one written over it meanwhile would give half of each.
        same = {"If-Match": f'"{facts.etag}"'} if facts.etag else {}
        while at < end:
            before = at
            for piece in self._stream(key, at, chunk, same):
                digest.update(piece)
                at += len(piece)
                yield piece
            if at == before:
                raise Unavailable(f"the store gave nothing of artifact {key!r}", reason="ARTIFACT_STORE_FAILED")
        if expected is not None and digest.hexdigest() != expected:
            message = f"artifact {key!r} is damaged: its SHA-256 is not the one it was written with"
            raise Unavailable(message, reason="ARTIFACT_DAMAGED", metadata={"key": key})

    def info(self, key: str) -> ArtifactInfo:
        """An artifact's facts, with its SHA-256 if it was written through a store (not by a grant)."""
        name = self._name(key)
        facts = self._do("read", key, lambda: self._client.stat_object(self.bucket, name))
        return _info(key, facts)

    def list(self, prefix: str = "") -> list[ArtifactInfo]:
        """The artifacts whose keys begin with the prefix, in order of keys; page by page from the store."""
        check_prefix(prefix)
        wanted = self.prefix + prefix

        def collect() -> list[ArtifactInfo]:
            found = self._client.list_objects(self.bucket, prefix=wanted, recursive=True)
            keyed = [(str(entry.object_name)[len(self.prefix) :], entry) for entry in found]
            # What others keep in the bucket under names that are no keys is none of ours.
            return [_info(key, entry) for key, entry in keyed if _is_key(key)]

        return sorted(self._do("list", prefix, collect), key=lambda info: info.key)

    def exists(self, key: str) -> bool:
        """Whether there is such an artifact."""
        try:
            self.info(key)
        except NotFound:
            return False
        return True

    def delete_prefix(self, prefix: str) -> int:
        """Deletes the artifacts whose keys begin with the prefix, a thousand in a request; how many they were."""
        if not prefix:
            raise InvalidArgument(field="prefix", value=prefix, expected="a prefix that is not empty")
        doomed = [self._name(info.key) for info in self.list(prefix)]

        def remove() -> None:
            errors = list(self._client.remove_objects(self.bucket, [DeleteObject(name) for name in doomed]))
            if errors:
                message = f"{len(errors)} artifacts were not deleted, the first of them because of {errors[0].code}"
                raise Unavailable(message, reason="ARTIFACT_STORE_FAILED")

        if doomed:
            self._do("delete", prefix, remove)
        return len(doomed)

    def grant_put(self, key: str) -> Grant:
        """Leave to write that key: a presigned URL."""
        return self._grant("PUT", key)

    def grant_get(self, key: str) -> Grant:
        """Leave to read that key: a presigned URL."""
        return self._grant("GET", key)

    def _name(self, key: str) -> str:
        return self.prefix + check_key(key)

    def _grant(self, method: str, key: str) -> Grant:
        name, expires = self._name(key), timedelta(seconds=self.options.grant_seconds)
        url = self._do("grant", key, lambda: self._public.get_presigned_url(method, self.bucket, name, expires=expires))
        return Grant(url=url)

    def _write(self, key: str, contents: s3_upload.Contents, *, if_absent: bool) -> bool:
        name, writer, tries = self._name(key), secrets.token_hex(8), 0

        def attempt() -> bool:
            nonlocal tries
            tries += 1
            try:
                s3_upload.write(
                    self._client,
                    self.bucket,
                    name,
                    contents,
                    part_bytes=self.options.part_bytes,
                    writer=writer,
                    if_absent=if_absent,
                )
            except S3Error as error:
                if not if_absent or not s3_errors.precondition_failed(error):
                    raise
                # Refused after an answer was lost: perhaps it is our own earlier try that is there.
                return tries > 1 and self._writer(name) == writer
            return True

        return self._do("write", key, attempt)

    def _writer(self, name: str) -> str | None:
        metadata = self._client.stat_object(self.bucket, name).metadata
        return metadata.get(s3_upload.WRITER_HEADER) if metadata else None

    def _stream(self, key: str, offset: int, chunk: int, same: dict[str, str]) -> Iterator[bytes]:
        """Bytes until the end, or until the connection breaks; the caller goes on from there."""
        name = self._name(key)

        def ask() -> Any:
            return self._client.get_object(self.bucket, name, offset=offset, request_headers=dict(same))

        response = self._do("read", key, ask)
        began = False
        try:
            for piece in response.stream(chunk):
                began = True
                yield piece
        except s3_errors.FAILURES as error:
            if not began or not s3_errors.transient(error):
                raise s3_errors.told("read", key, error, self.options, self.bucket) from None
        finally:
            response.close()
            response.release_conn()

    def _do(self, verb: str, key: str, work: Callable[[], T], *, seconds: float | None = None) -> T:
        """Does it, again while the failure is a passing one; maps what remains to domain errors."""
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
                message = f"artifact {key!r} was written anew while it was read; read it again"
                raise Unavailable(message, reason="ARTIFACT_CHANGED", metadata={"key": key}) from None
            raise s3_errors.told(verb, key, error, self.options, self.bucket) from None

    def _open(self) -> None:
        seconds = min(OPEN_SECONDS, self.options.retry_seconds)
        try:
            # A listing, not a HEAD: only its answer has a body that says what is wrong.
            self._do(
                "open", "", lambda: next(self._client.list_objects(self.bucket, self.prefix), None), seconds=seconds
            )
        except Unavailable as error:
            if error.reason != "S3_BUCKET_MISSING" or not self.options.create_bucket:
                raise
            self._do("open", "", self._make_bucket, seconds=seconds)

    def _make_bucket(self) -> None:
        try:
            self._client.make_bucket(self.bucket, location=self.options.region)
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
                self._client.set_bucket_lifecycle(self.bucket, LifecycleConfig([rule]))
            except S3Error as error:
                # Some stores know no such rule (MinIO drops unfinished uploads by itself); the bucket serves all the same.
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
    digest = facts.metadata.get(s3_upload.DIGEST_HEADER) if facts.metadata else None
    return ArtifactInfo(key=key, size=int(facts.size or 0), modified=facts.last_modified, sha256=digest)
