"""The artifact store of a service: opened from its settings, with metrics (``dressage_artifact_*``)."""

from __future__ import annotations

import builtins
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from prometheus_client import REGISTRY, CollectorRegistry, Counter, Histogram

from dressage.artifacts import ArtifactInfo, ArtifactStore, Grant, open_store
from dressage.artifacts.store import DEFAULT_CHUNK
from dressage.errors import DressageError, InvalidArgument, NotFound

_BUCKETS = (0.002, 0.01, 0.05, 0.2, 1.0, 5.0, 30.0, 120.0)


@dataclass(frozen=True)
class StoreMetrics:
    """Metrics of a store.

    :param bytes_: labels operation (``put``, ``get``).
    :param errors: labels operation, reason; a missing artifact is no error.
    :param seconds: labels operation.
    """

    bytes_: Counter
    errors: Counter
    seconds: Histogram


_FAMILIES: dict[int, StoreMetrics] = {}


def store_metrics(registry: CollectorRegistry = REGISTRY) -> StoreMetrics:
    """Return the families of ``registry``, created once."""
    if id(registry) not in _FAMILIES:
        _FAMILIES[id(registry)] = StoreMetrics(
            bytes_=Counter("dressage_artifact_bytes", "Bytes written and read.", ["operation"], registry=registry),
            errors=Counter("dressage_artifact_errors", "Failures.", ["operation", "reason"], registry=registry),
            seconds=Histogram(
                "dressage_artifact_seconds",
                "Duration of an operation in seconds.",
                ["operation"],
                buckets=_BUCKETS,
                registry=registry,
            ),
        )
    return _FAMILIES[id(registry)]


def open_service_store(url: str) -> ArtifactStore:
    """Return the store of a ``store_url``, with metrics. It blocks: call it in a thread.

    :raises InvalidArgument: for an invalid URL or setting.
    :raises Unavailable: if the store cannot be used, naming the setting to correct.
    """
    return MeteredStore(open_store(url), store_metrics())


class MeteredStore:
    """A store with metrics; see `ArtifactStore` for the methods."""

    def __init__(
        self, inner: ArtifactStore, metrics: StoreMetrics, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.inner = inner
        self._metrics = metrics
        self._clock = clock

    def put(self, key: str, data: bytes, *, if_absent: bool = False, synced: bool = True) -> bool:
        with self._measure("put"):
            written = self.inner.put(key, data, if_absent=if_absent, synced=synced)
        self._metrics.bytes_.labels("put").inc(len(data) if written else 0)
        return written

    def put_file(self, key: str, path: Path, *, if_absent: bool = False) -> bool:
        with self._measure("put"):
            written = self.inner.put_file(key, path, if_absent=if_absent)
        self._metrics.bytes_.labels("put").inc(path.stat().st_size if written else 0)
        return written

    def get(self, key: str) -> bytes:
        with self._measure("get"):
            data = self.inner.get(key)
        self._metrics.bytes_.labels("get").inc(len(data))
        return data

    def read(self, key: str, chunk: int = DEFAULT_CHUNK, *, offset: int = 0) -> Iterator[bytes]:
        with self._measure("get"):
            for piece in self.inner.read(key, chunk, offset=offset):
                self._metrics.bytes_.labels("get").inc(len(piece))
                yield piece

    def info(self, key: str) -> ArtifactInfo:
        with self._measure("info"):
            return self.inner.info(key)

    def list(self, prefix: str = "") -> builtins.list[ArtifactInfo]:
        with self._measure("list"):
            return self.inner.list(prefix)

    def page(self, prefix: str = "", *, after: str = "", limit: int | None = None) -> builtins.list[ArtifactInfo]:
        with self._measure("list"):
            return self.inner.page(prefix, after=after, limit=limit)

    def folders(self, prefix: str) -> builtins.list[str]:
        with self._measure("list"):
            return self.inner.folders(prefix)

    def exists(self, key: str) -> bool:
        with self._measure("info"):
            return self.inner.exists(key)

    def delete_prefix(self, prefix: str) -> int:
        with self._measure("delete"):
            return self.inner.delete_prefix(prefix)

    def delete_remains(self, before: datetime) -> int:
        with self._measure("delete"):
            return self.inner.delete_remains(before)

    def grant_put(self, key: str, *, size: int | None = None, writer: str = "") -> Grant:
        return self.inner.grant_put(key, size=size, writer=writer)

    def grant_get(self, key: str) -> Grant:
        return self.inner.grant_get(key)

    @contextmanager
    def _measure(self, operation: str) -> Iterator[Any]:
        began = self._clock()
        try:
            yield
        except (NotFound, InvalidArgument):
            raise
        except DressageError as error:
            self._metrics.errors.labels(operation, error.reason).inc()
            raise
        finally:
            self._metrics.seconds.labels(operation).observe(self._clock() - began)
