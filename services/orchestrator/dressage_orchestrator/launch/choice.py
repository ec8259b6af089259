"""Which launcher the settings ask for."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from dressage.errors import FailedPrecondition, InvalidArgument

from dressage_orchestrator.launch.controller import RunController
from dressage_orchestrator.launch.kubernetes.pools import Pool, load_pools
from dressage_orchestrator.launch.local import LocalLauncher
from dressage_orchestrator.launch.protocol import Launcher
from dressage_orchestrator.settings import Settings


def pools_of(settings: Settings) -> dict[str, Pool] | None:
    """The pools of Kubernetes; None when trainers are processes of this machine.

    :raises InvalidArgument: when the file is missing or wrong, or has not the default pool.
    """
    if settings.launcher == "local":
        return None
    if settings.kubernetes_pools_file is None:
        raise InvalidArgument(field="kubernetes_pools_file", value=None, expected="a JSON file of pools")
    pools = load_pools(settings.kubernetes_pools_file)
    if settings.default_pool not in pools:
        expected = f"one of {', '.join(sorted(pools))} (of {settings.kubernetes_pools_file})"
        raise InvalidArgument(field="default_pool", value=settings.default_pool, expected=expected)
    return pools


async def open_launcher(
    settings: Settings, *, pools: Mapping[str, Pool] | None, folder: Path, controller: RunController
) -> Launcher:
    """The launcher, not yet started.

    :raises FailedPrecondition: when there is no cluster, or not the object that shall own the Jobs.
    """
    if pools is None:
        return LocalLauncher(
            log_folder=folder / "logs",
            on_end=controller.ended,
            max_parallel=settings.max_parallel_runs,
            command=settings.trainer_command,
            hello_seconds=settings.hello_seconds,
            stop_seconds=settings.stop_seconds,
        )
    from dressage_orchestrator.launch.kubernetes.client import RateLimit, connect, own_namespace
    from dressage_orchestrator.launch.kubernetes.launcher import KubernetesLauncher
    from dressage_orchestrator.launch.kubernetes.manifest import Place

    namespace = settings.kubernetes_namespace or own_namespace()
    limit = RateLimit(per_second=settings.kubernetes_requests_per_second, burst=settings.kubernetes_burst)
    client = connect(namespace=namespace, limit=limit)
    owner = await client.owner(settings.kubernetes_owner) if settings.kubernetes_owner else None
    place = Place(namespace, settings.kubernetes_instance, owner=owner, tls_ca=_tls_ca(settings))
    return KubernetesLauncher(
        client,
        pools=pools,
        place=place,
        runs=controller,
        on_end=controller.ended,
        on_notice=controller.noticed,
        hello_seconds=settings.hello_seconds,
        relist_seconds=settings.kubernetes_relist_seconds,
    )


def _tls_ca(settings: Settings) -> str:
    if settings.trainer_tls_ca_file is None:
        return ""
    try:
        return settings.trainer_tls_ca_file.read_text()
    except OSError as error:
        message = f"trainer_tls_ca_file {settings.trainer_tls_ca_file} cannot be read: {error.strerror}"
        raise FailedPrecondition(message, reason="TLS_CA_UNREADABLE") from None
