"""The few requests that we make of a Kubernetes API server, through the official client, at a bounded rate.

Objects are plain dictionaries, as the server sends them: what newer servers add passes through, and a list of hundreds of
Jobs costs no models. Nothing of the official client is imported before `connect`.
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
    """A request that failed.

    :param status: HTTP status; 0 when the server was not reached.
    """

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message

    @property
    def lasting(self) -> bool:
        """Whether the same request would fail again: the server does not accept what was sent."""
        return self.status in (400, 422)


class RateLimit:
    """A token bucket: ``burst`` at once, ``per_second`` in the long run; who waits is served in order."""

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
        self._seen = clock()
        self._lock = asyncio.Lock()

    async def take(self) -> None:
        """Waits for the right to make one request."""
        async with self._lock:
            now = self._clock()
            self._tokens = min(self._burst, self._tokens + (now - self._seen) * self._per_second)
            self._seen = now
            self._tokens -= 1
            if self._tokens < 0:
                await self._sleep(-self._tokens / self._per_second)


class ClusterClient:
    """See the module. Use it within one event loop.

    :param batch: the official client's `BatchV1Api`.
    :param core: its `CoreV1Api`.
    """

    def __init__(self, *, batch: Any, core: Any, namespace: str, limit: RateLimit) -> None:
        self._batch = batch
        self._core = core
        self.namespace = namespace
        self._limit = limit
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="kubernetes")

    async def create_job(self, manifest: Json, *, dry_run: bool = False) -> bool:
        """Creates a Job; False when one of that name exists, which is as good."""
        options = {"dry_run": "All"} if dry_run else {}
        try:
            await self._request("create", self._batch.create_namespaced_job, self.namespace, manifest, **options)
        except ClusterError as error:
            if error.status == 409:
                return False
            raise
        return True

    async def delete_job(self, name: str) -> None:
        """Deletes a Job and its pods, which get their grace period. One that is gone is gone."""
        try:
            await self._request(
                "delete", self._batch.delete_namespaced_job, name, self.namespace, propagation_policy="Background"
            )
        except ClusterError as error:
            if error.status != 404:
                raise

    async def all(self, kind: Kind, selector: str) -> tuple[list[Json], str]:
        """All objects with those labels, and the resource version to watch from."""
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

    async def refusals(self) -> dict[str, list[str]]:
        """Why pods of Jobs could not be created, lately: messages by the Job's name, oldest first."""
        selector = "involvedObject.kind=Job,reason=FailedCreate"
        page = await self._request(
            "list", self._core.list_namespaced_event, self.namespace, field_selector=selector, limit=_PAGE
        )
        found: dict[str, list[str]] = {}
        for event in sorted(page.get("items") or (), key=lambda event: event.get("lastTimestamp") or ""):
            found.setdefault(event["involvedObject"]["name"], []).append(str(event.get("message") or ""))
        return found

    async def log(self, pod: str, *, lines: int) -> bytes:
        """The last lines of what a pod's trainer wrote."""
        await self._limit.take()
        metrics.KUBERNETES_REQUESTS.labels("log").inc()

        def read() -> bytes:
            options = {"container": CONTAINER, "tail_lines": lines, "_request_timeout": _TIMEOUT}
            return _read(self._core.read_namespaced_pod_log, pod, self.namespace, **options)

        return await asyncio.get_running_loop().run_in_executor(self._threads, read)

    async def owner(self, name: str) -> Owner:
        """The ConfigMap that Jobs shall belong to.

        :raises FailedPrecondition: when there is none.
        """
        try:
            found = await self._request("get", self._core.read_namespaced_config_map, name, self.namespace)
        except ClusterError as error:
            message = f"the ConfigMap {name!r} in namespace {self.namespace!r} that shall own Jobs: {error.message}"
            raise FailedPrecondition(message, reason="OWNER_NOT_FOUND") from None
        return Owner(name=name, uid=found["metadata"]["uid"])

    async def watch(self, kind: Kind, selector: str, version: str, *, seconds: int) -> AsyncIterator[tuple[str, Json]]:
        """Changes since that resource version, as (``ADDED`` | ``MODIFIED`` | ``DELETED``, object), for so long.

        It ends early when the server ends it, and when the version is too old; list again then.
        """
        await self._limit.take()
        metrics.KUBERNETES_REQUESTS.labels("watch").inc()
        loop = asyncio.get_running_loop()
        queue: asyncio.Queue[tuple[str, Json] | ClusterError | None] = asyncio.Queue(_QUEUE)
        over = threading.Event()

        def tell(item: tuple[str, Json] | ClusterError | None) -> None:
            # A full queue drops what comes: the next list tells it anyway.
            with contextlib.suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(lambda: None if queue.full() else queue.put_nowait(item))

        def read() -> None:
            try:
                for event in self._stream(kind, selector, version, seconds):
                    if over.is_set():
                        return
                    tell(event)
                tell(None)
            except ClusterError as error:
                tell(error)

        # A thread of its own that nobody waits for at exit: a blocked read cannot be interrupted.
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
        except TimeoutError:  # the connection died without a word
            return
        finally:
            over.set()

    def close(self) -> None:
        """Makes no further request."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _lister(self, kind: Kind) -> Callable[..., Any]:
        return self._batch.list_namespaced_job if kind == "jobs" else self._core.list_namespaced_pod  # type: ignore[no-any-return]

    def _stream(self, kind: Kind, selector: str, version: str, seconds: int) -> Any:
        response = _called(
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
        except Exception as error:  # urllib3's many ways to lose a connection
            raise ClusterError(0, f"the watch was cut: {type(error).__name__}") from None
        finally:
            response.close()

    async def _request(self, verb: str, call: Callable[..., Any], *arguments: Any, **options: Any) -> Json:
        await self._limit.take()
        metrics.KUBERNETES_REQUESTS.labels(verb).inc()

        def make() -> Json:
            try:
                answer: Json = json.loads(_read(call, *arguments, _request_timeout=_TIMEOUT, **options))
            except ValueError:
                raise ClusterError(0, "the API server's answer is no JSON") from None
            return answer

        return await asyncio.get_running_loop().run_in_executor(self._threads, make)


def _called(call: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    from kubernetes.client.exceptions import ApiException
    from urllib3.exceptions import HTTPError

    try:
        return call(*arguments, _preload_content=False, **options)
    except ApiException as error:
        raise ClusterError(int(error.status or 0), _said(error)) from None
    except (HTTPError, OSError) as error:
        raise ClusterError(0, f"the API server cannot be reached: {type(error).__name__}") from None


def _read(call: Callable[..., Any], *arguments: Any, **options: Any) -> bytes:
    from urllib3.exceptions import HTTPError

    response = _called(call, *arguments, **options)
    try:
        return bytes(response.data)
    except (HTTPError, OSError) as error:
        raise ClusterError(0, f"the API server's answer was cut: {type(error).__name__}") from None


def _said(error: Any) -> str:
    try:
        return str(json.loads(error.body)["message"])
    except (TypeError, ValueError, KeyError):
        return str(error.reason or "no message")


def own_namespace() -> str:
    """The namespace of the pod that this process runs in; ``default`` outside of a cluster."""
    try:
        return _NAMESPACE_FILE.read_text().strip() or "default"
    except OSError:
        return "default"


def connect(*, namespace: str, limit: RateLimit) -> ClusterClient:
    """A client of the cluster that this pod is in, else of the one that ``KUBECONFIG`` names.

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
    configuration.retries = False
    configuration.connection_pool_maxsize = _THREADS + 2
    api = client.ApiClient(configuration)
    return ClusterClient(batch=client.BatchV1Api(api), core=client.CoreV1Api(api), namespace=namespace, limit=limit)
