"""Whether the cluster has a node for the GPUs of a pool. A Job without one would wait for ever."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dressage_orchestrator.launch.kubernetes.pools import Pool

Json = dict[str, Any]

REASON = "NO_GPU_NODE"


def problem_of(pool_name: str, pool: Pool, nodes: Sequence[Json]) -> str:
    """Return why no node can ever run a pod of a pool with GPUs; empty if one can, whether it is busy or not.

    Nodes count by their labels and by what they have in all (``status.allocatable``).

    :param nodes: all nodes of the cluster.
    """
    selected = [node for node in nodes if _labels(node).items() >= pool.node_selector.items()]
    if any(_has(node, pool.devices) for node in selected):
        return ""
    request = ", ".join(f"{name}: {amount:g}" for name, amount in sorted(pool.devices.items()))
    most = {name: max((_amount(node, name) for node in selected), default=0.0) for name in pool.devices}
    largest = ", ".join(f"{name}: {amount:g}" for name, amount in sorted(most.items()))
    labels = f" with the labels {pool.node_selector}" if pool.node_selector else ""
    return (
        f"pool {pool_name!r} asks for {request}, but none of {len(selected)} nodes{labels} has that much "
        f"(the most on a node: {largest})"
    )


def _labels(node: Json) -> dict[str, str]:
    return dict((node.get("metadata") or {}).get("labels") or {})


def _has(node: Json, devices: dict[str, float]) -> bool:
    return all(_amount(node, name) >= amount for name, amount in devices.items())


def _amount(node: Json, name: str) -> float:
    amounts = (node.get("status") or {}).get("allocatable") or {}
    text = str(amounts.get(name, "0"))
    return float(text) if text.isdecimal() else 0.0  # GPUs are counted in whole numbers
