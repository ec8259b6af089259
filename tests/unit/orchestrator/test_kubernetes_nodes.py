"""A run whose GPU no node has is refused before a Job exists."""

from __future__ import annotations

from typing import Any

import pytest
from dressage_orchestrator.launch.kubernetes import pools
from dressage_orchestrator.launch.kubernetes.client import ClusterError
from dressage_orchestrator.launch.kubernetes.pools import Pool

from tests.unit.orchestrator.test_kubernetes_launcher import Bench, Server, until

GPU = Pool.model_validate({"image": "i", "resources": {"limits": {"nvidia.com/gpu": 2}}, "nodeSelector": {"zone": "a"}})


def node(gpus: str | None, **labels: str) -> dict[str, Any]:
    amounts = {"cpu": "7910m", "memory": "31Gi"} | ({} if gpus is None else {"nvidia.com/gpu": gpus})
    return {"metadata": {"name": "n", "labels": labels}, "status": {"allocatable": amounts}}


@pytest.mark.parametrize(
    ("present", "problem"),
    [
        ([node("2", zone="a")], ""),
        ([node(None, zone="a"), node("8", zone="a")], ""),
        ([], "none of 0 nodes with the labels {'zone': 'a'} has that much"),
        ([node(None, zone="a")], "the most on a node: nvidia.com/gpu: 0"),
        ([node("1", zone="a")], "the most on a node: nvidia.com/gpu: 1"),
        ([node("8", zone="b")], "none of 0 nodes"),
    ],
)
def test_a_node_counts_by_its_labels_and_all_its_gpus(present: list[dict[str, Any]], problem: str) -> None:
    problem_text = pools.node_problem("gpu", GPU, present)
    assert (problem_text == "") == (problem == "") and problem in problem_text
    if problem_text:
        assert problem_text.startswith("pool 'gpu' asks for nvidia.com/gpu: 2")


def test_a_shared_gpu_is_a_device_too() -> None:
    shared = Pool.model_validate({"image": "i", "resources": {"limits": {"nvidia.com/gpu.shared": 1}}})
    assert shared.has_devices and shared.devices == {"nvidia.com/gpu.shared": 1.0}
    assert not Pool(image="i").has_devices


class _Cluster(Server):
    def __init__(self, present: list[dict[str, Any]] | ClusterError) -> None:
        super().__init__()
        self._nodes = present

    async def nodes(self) -> list[dict[str, Any]]:
        if isinstance(self._nodes, ClusterError):
            raise self._nodes
        return self._nodes


@pytest.mark.parametrize(
    ("present", "on_demand", "refused"),
    [
        ([node(None, zone="a")], False, True),
        ([node(None, zone="a")], True, False),
        ([node("2", zone="a")], False, False),
        (ClusterError(403, "nodes is forbidden"), False, False),
    ],
)
async def test_a_run_without_a_node_for_its_gpu_fails_without_a_job(
    present: list[dict[str, Any]] | ClusterError, on_demand: bool, refused: bool
) -> None:
    server = _Cluster(present)
    pool = GPU.model_copy(update={"nodes_on_demand": on_demand})
    bench = Bench(server, pools={"cpu": Pool(image="i"), "gpu": pool})
    await bench.launcher.start()
    try:
        bench.submit(pool="gpu")
        await until(lambda: bool(bench.ended) or "create" in server.requests)
        assert ("create" in server.requests) == (not refused)
        if refused:
            (word,) = bench.ended
            assert word.final and word.reason == "NO_GPU_NODE" and "nodesOnDemand" in word.remedy
    finally:
        await bench.launcher.close()
