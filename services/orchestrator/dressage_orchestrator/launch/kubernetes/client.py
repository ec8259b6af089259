"""Rate-limited requests to the Kubernetes API server, through the official client.

Objects are plain dictionaries as sent by the server: fields of newer servers are preserved, and lists of hundreds of Jobs
are not converted into models. The official client is not imported before `connect`.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Literal

from dressage.errors import FailedPrecondition

from dressage_orchestrator import metrics
from dressage_orchestrator.launch.kubernetes.manifest import CONTAINER, Owner

Kind = Literal["jobs", "pods"]
Json = dict[str, Any]

_NAMESPACE_FILE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
_TIMEOUT = (5.0, 30.0)
_WATCH_MARGIN_SECONDS = 15.0
_PAGE = 500
_THREADS = 4
_QUEUE = 10_000


class ClusterError(Exception):
    """A failed request.

    :param status: HTTP status; 0 if the server was not reached.
    """

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message

    @property
    def permanent(self) -> bool:
        """Whether a retry would fail in the same way, because the server rejects the object."""
        return self.status in (400, 422)


class RateLimit:
    """A token bucket: up to ``burst`` requests at once, ``per_second`` on average; callers wait in order."""

    def __init__(
        self,
        *,
        per_second: float,
        burst: int,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._per_second = per_second
        self._burst = burst
        self._clock = clock
        self._sleep = sleep
        self._tokens = float(burst)
        self._updated = clock()
        self._lock = asyncio.Lock()

    async def take(self) -> None:
        """Wait until one request is allowed."""
        async with self._lock:
            now = self._clock()
            self._tokens = min(self._burst, self._tokens + (now - self._updated) * self._per_second)
            self._updated = now
            self._tokens -= 1
            if self._tokens < 0:
                await self._sleep(-self._tokens / self._per_second)


class ClusterClient:
    """Requests to the API server. Use it within one event loop.

    :param batch: `BatchV1Api` of the official client.
    :param core: `CoreV1Api` of the official client.
    """

    def __init__(self, *, batch: Any, core: Any, namespace: str, limit: RateLimit) -> None:
        self._batch = batch
        self._core = core
        self.namespace = namespace
        self._limit = limit
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="kubernetes")

    async def create_job(self, manifest: Json, *, dry_run: bool = False) -> bool:
        """Create a Job; False if one of that name already exists."""
        options = {"dry_run": "All"} if dry_run else {}
        try:
            await self._request("create", self._batch.create_namespaced_job, self.namespace, manifest, **options)
        except ClusterError as error:
            if error.status == 409:
                return False
            raise
        return True

    async def delete_job(self, name: str) -> None:
        """Delete a Job and its pods, with their grace period. Do nothing if it does not exist."""
        try:
            await self._request(
                "delete", self._batch.delete_namespaced_job, name, self.namespace, propagation_policy="Background"
            )
        except ClusterError as error:
            if error.status != 404:
                raise

    async def all(self, kind: Kind, selector: str) -> tuple[list[Json], str]:
        """List all objects with those labels.

        :return: the objects, and the resource version to watch from.
        """
        items: list[Json] = []
        more = ""
        while True:
            options = {"_continue": more} if more else {}
            page = await self._request(
                "list", self._lister(kind), self.namespace, label_selector=selector, limit=_PAGE, **options
            )
            items += page.get("items") or ()
            more = page["metadata"].get("continue") or ""
            if not more:
                return items, page["metadata"]["resourceVersion"]

    async def nodes(self) -> list[Json]:
        """List the cluster's nodes.

        :raises ClusterError: with status 403 where the orchestrator has no ClusterRole for it.
        """
        items: list[Json] = []
        more = ""
        while True:
            options = {"_continue": more} if more else {}
            page = await self._request("list", self._core.list_node, limit=_PAGE, **options)
            items += page.get("items") or ()
            more = page["metadata"].get("continue") or ""
            if not more:
                return items

    async def failed_creations(self) -> dict[str, list[str]]:
        """Read recent `FailedCreate` events of Jobs: messages by the name of the Job, oldest first."""
        selector = "involvedObject.kind=Job,reason=FailedCreate"
        page = await self._request(
            "list", self._core.list_namespaced_event, self.namespace, field_selector=selector, limit=_PAGE
        )
        messages: dict[str, list[str]] = {}
        for event in sorted(page.get("items") or (), key=lambda event: event.get("lastTimestamp") or ""):
            messages.setdefault(event["involvedObject"]["name"], []).append(str(event.get("message") or ""))
        return messages

    async def log(self, pod: str, *, lines: int) -> bytes:
        """Read the last lines of the log of a pod's trainer."""
        await self._limit.take()
        metrics.KUBERNETES_REQUESTS.labels("log").inc()

        def read() -> bytes:
            options = {"container": CONTAINER, "tail_lines": lines, "_request_timeout": _TIMEOUT}
            return _read(self._core.read_namespaced_pod_log, pod, self.namespace, **options)

        return await asyncio.get_running_loop().run_in_executor(self._threads, read)

    async def owner(self, name: str) -> Owner:
        """Get the ConfigMap that owns the Jobs.

        :raises FailedPrecondition: when it does not exist.
        """
        try:
            config_map = await self._request("get", self._core.read_namespaced_config_map, name, self.namespace)
        except ClusterError as error:
            message = f"cannot read the ConfigMap {name!r} in namespace {self.namespace!r}, the owner of Jobs: {error.message}"
            raise FailedPrecondition(message, reason="OWNER_NOT_FOUND") from None
        return Owner(name=name, uid=config_map["metadata"]["uid"])

    async def watch(self, kind: Kind, selector: str, version: str, *, seconds: int) -> AsyncIterator[tuple[str, Json]]:
        """Watch changes since a resource version, as (``ADDED`` | ``MODIFIED`` | ``DELETED``, object).

        The watch ends early if the server closes it or the version is too old; list again then.

        :param seconds: duration of the watch.
        """
        await self._limit.take()
        metrics.KUBERNETES_REQUESTS.labels("watch").inc()
        loop = asyncio.get_running_loop()
        queue: asyncio.Queue[tuple[str, Json] | ClusterError | None] = asyncio.Queue(_QUEUE)
        closed = threading.Event()

        def enqueue(item: tuple[str, Json] | ClusterError | None) -> None:
            # A full queue drops the item; the next list contains the change.
            with contextlib.suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(lambda: None if queue.full() else queue.put_nowait(item))

        def read() -> None:
            try:
                for event in self._stream(kind, selector, version, seconds):
                    if closed.is_set():
                        return
                    enqueue(event)
                enqueue(None)
            except ClusterError as error:
                enqueue(error)

        # A daemon thread, which is not joined at exit: a blocked read cannot be interrupted.
        threading.Thread(target=read, name=f"watch-{kind}", daemon=True).start()
        try:
            while True:
                async with asyncio.timeout(seconds + _WATCH_MARGIN_SECONDS):
                    item = await queue.get()
                if item is None:
                    return
                if isinstance(item, ClusterError):
                    raise item
                yield item
        except TimeoutError:  # the connection was lost without an error
            return
        finally:
            closed.set()

    def close(self) -> None:
        """Stop making requests."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _lister(self, kind: Kind) -> Callable[..., Any]:
        return self._batch.list_namespaced_job if kind == "jobs" else self._core.list_namespaced_pod  # type: ignore[no-any-return]

    def _stream(self, kind: Kind, selector: str, version: str, seconds: int) -> Any:
        response = _call(
            self._lister(kind),
            self.namespace,
            label_selector=selector,
            watch=True,
            resource_version=version,
            timeout_seconds=seconds,
            _request_timeout=(_TIMEOUT[0], seconds + _WATCH_MARGIN_SECONDS),
        )
        rest = b""
        try:
            for chunk in response.stream(amt=65536, decode_content=False):
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:
                    event = json.loads(line)
                    if event["type"] == "ERROR":
                        status = event["object"]
                        raise ClusterError(int(status.get("code") or 0), str(status.get("message")))
                    if event["type"] != "BOOKMARK":
                        yield event["type"], event["object"]
        except ClusterError:
            raise
        except Exception as error:  # urllib3 raises many kinds of errors for a lost connection
            raise ClusterError(0, f"the watch was interrupted: {type(error).__name__}") from None
        finally:
            response.close()

    async def _request(self, verb: str, call: Callable[..., Any], *arguments: Any, **options: Any) -> Json:
        await self._limit.take()
        metrics.KUBERNETES_REQUESTS.labels(verb).inc()

        def make() -> Json:
            try:
                answer: Json = json.loads(_read(call, *arguments, _request_timeout=_TIMEOUT, **options))
            except ValueError:
                raise ClusterError(0, "the response of the API server is not JSON") from None
            return answer

        return await asyncio.get_running_loop().run_in_executor(self._threads, make)


def _call(call: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    from kubernetes.client.exceptions import ApiException
    from urllib3.exceptions import HTTPError

    try:
        return call(*arguments, _preload_content=False, **options)
    except ApiException as error:
        raise ClusterError(int(error.status or 0), _error_message(error)) from None
    except (HTTPError, OSError) as error:
        raise ClusterError(0, f"the API server cannot be reached: {type(error).__name__}") from None


def _read(call: Callable[..., Any], *arguments: Any, **options: Any) -> bytes:
    from urllib3.exceptions import HTTPError

    response = _call(call, *arguments, **options)
    try:
        return bytes(response.data)
    except (HTTPError, OSError) as error:
        raise ClusterError(0, f"the response of the API server is incomplete: {type(error).__name__}") from None


def _error_message(error: Any) -> str:
    try:
        return str(json.loads(error.body)["message"])
    except (TypeError, ValueError, KeyError):
        return str(error.reason or "no message")


def own_namespace() -> str:
    """Namespace of this process's pod; ``default`` outside of a cluster."""
    try:
        return _NAMESPACE_FILE.read_text().strip() or "default"
    except OSError:
        return "default"


def connect(*, namespace: str, limit: RateLimit) -> ClusterClient:
    """Connect to the cluster of this pod, else to that of ``KUBECONFIG``.

    :raises FailedPrecondition: when there is neither.
    """
    from kubernetes import client, config

    configuration = client.Configuration()
    try:
        try:
            config.load_incluster_config(client_configuration=configuration)  # type: ignore[no-untyped-call]
        except config.ConfigException:
            config.load_kube_config(client_configuration=configuration)  # type: ignore[no-untyped-call]
    except config.ConfigException as error:
        message = f"no Kubernetes cluster: neither a pod's service account nor a KUBECONFIG ({error})"
        raise FailedPrecondition(message, reason="NO_CLUSTER") from None
    # urllib3 would repeat requests past the rate limit.
    configuration.retries = False
    configuration.connection_pool_maxsize = _THREADS + 2
    api = client.ApiClient(configuration)
    return ClusterClient(batch=client.BatchV1Api(api), core=client.CoreV1Api(api), namespace=namespace, limit=limit)
