"""Creates the launcher that the settings select."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from dressage.errors import FailedPrecondition, InvalidArgument

from dressage_orchestrator.launch.controller import RunController
from dressage_orchestrator.launch.kubernetes.pools import Pool, load_pools
from dressage_orchestrator.launch.local import LocalLauncher
from dressage_orchestrator.launch.protocol import Launcher
from dressage_orchestrator.settings import Settings


def configured_pools(settings: Settings) -> dict[str, Pool] | None:
    """Read the pools of Kubernetes; None if trainers are local processes.

    :raises InvalidArgument: when the file is missing or invalid, or does not contain the default pool.
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
    """Create the launcher without starting it.

    :raises FailedPrecondition: when there is no cluster, or the ConfigMap that owns the Jobs does not exist.
    """
    if pools is None:
        return LocalLauncher(
            log_folder=folder / "logs",
            on_result=controller.handle_result,
            max_parallel=settings.max_parallel_runs,
            command=settings.trainer_command,
            hello_seconds=settings.hello_seconds,
            stop_seconds=settings.stop_seconds,
        )
    from dressage_orchestrator.launch.kubernetes.client import RateLimit, connect, own_namespace
    from dressage_orchestrator.launch.kubernetes.launcher import KubernetesLauncher
    from dressage_orchestrator.launch.kubernetes.manifest import Installation

    namespace = settings.kubernetes_namespace or own_namespace()
    limit = RateLimit(per_second=settings.kubernetes_requests_per_second, burst=settings.kubernetes_burst)
    client = connect(namespace=namespace, limit=limit)
    owner = await client.owner(settings.kubernetes_owner) if settings.kubernetes_owner else None
    installation = Installation(namespace, settings.kubernetes_instance, owner=owner, tls_ca=_tls_ca(settings))
    return KubernetesLauncher(
        client,
        pools=pools,
        installation=installation,
        runs=controller,
        on_result=controller.handle_result,
        on_notice=controller.handle_notice,
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
