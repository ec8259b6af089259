"""Pools: pod settings of runs, read by name from a mounted JSON file. Keys are camelCase, as in Helm values."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

from dressage.errors import InvalidArgument
from dressage.sandbox.machine import Machine
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic.alias_generators import to_camel

_QUANTITY = re.compile(r"([0-9]+(?:\.[0-9]+)?)(m|k|M|G|T|Ki|Mi|Gi|Ti)?\Z")
_FACTORS = {
    None: 1.0,
    "m": 1e-3,
    "k": 1e3,
    "M": 1e6,
    "G": 1e9,
    "T": 1e12,
    "Ki": 2.0**10,
    "Mi": 2.0**20,
    "Gi": 2.0**30,
    "Ti": 2.0**40,
}
_DEVICES = ("/gpu", "/gpu.shared")
_POOL_NAME = re.compile(r"[a-z]([a-z0-9-]{0,61}[a-z0-9])?\Z")

Quantity = Annotated[str, Field(pattern=_QUANTITY.pattern.replace(r"\Z", "$"), coerce_numbers_to_str=True)]


class _Model(BaseModel):
    model_config = ConfigDict(
        alias_generator=to_camel, populate_by_name=True, extra="forbid", frozen=True, coerce_numbers_to_str=True
    )


class Resources(_Model):
    """Resource requests and limits of a pod: Kubernetes quantities by resource name."""

    requests: dict[str, Quantity] = {"cpu": "1", "memory": "2Gi"}
    limits: dict[str, Quantity] = {"memory": "4Gi"}


class Pool(_Model):
    """Settings of the pods of a pool."""

    image: str = Field(min_length=1, description="image of the trainer")
    image_pull_policy: str = Field("IfNotPresent", pattern="^(IfNotPresent|Always|Never)$")
    image_pull_secrets: tuple[str, ...] = ()
    command: tuple[str, ...] = Field((), description="command of the trainer; the entrypoint of the image if empty")
    env: dict[str, str] = Field({}, description="additional environment variables of the trainer")
    resources: Resources = Resources()
    cores: int = Field(
        0, ge=0, le=1024, description="number of cores for training; 0: the CPU limit, else the request, rounded up"
    )
    node_selector: dict[str, str] = {}
    tolerations: tuple[dict[str, Any], ...] = ()
    affinity: dict[str, Any] = {}
    priority_class: str = ""
    runtime_class: str = Field("", description="for example gvisor")
    service_account: str = Field("", description="its token is never mounted")
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    queue: str = Field("", description="Kueue's LocalQueue; its Jobs are created suspended")
    backoff_limit: int = Field(3, ge=0, le=100, description="number of failed pods of a run that are replaced")
    deadline_seconds: int = Field(
        24 * 3600, ge=60, description="how long a Job may be active before another one continues"
    )
    ttl_seconds: int = Field(3600, ge=60, description="how long an ended Job is kept, for its logs")
    grace_seconds: int = Field(
        60, ge=5, le=3600, description="time from SIGTERM to SIGKILL, for the upload of the last checkpoint"
    )
    scratch_size: Quantity = Field("4Gi", description="size limit of the scratch folder, /tmp")
    scratch_medium: str = Field(
        "", pattern="^(Memory)?$", description="Memory: a tmpfs, which counts towards the memory limit"
    )
    shm_size: Quantity | None = Field(None, description="size limit of /dev/shm; the runtime's default if not set")
    ca_config_map: str = Field("", description="ConfigMap with the CA certificate of the artifact store as `ca.crt`")
    nodes_on_demand: bool = Field(
        False, description="nodes are added when a run needs them, so a run is not refused where no node has its GPU"
    )
    allow_unsandboxed: bool = Field(False, description="run generated code on nodes without Landlock or seccomp")

    @model_validator(mode="after")
    def _grace_within_deadline(self) -> Pool:
        if self.grace_seconds >= self.deadline_seconds:
            raise ValueError("graceSeconds must be less than deadlineSeconds")
        return self

    @property
    def usable_cores(self) -> int:
        """Number of cores that a run trains on."""
        quantity = self.resources.limits.get("cpu") or self.resources.requests.get("cpu") or "1"
        return self.cores or max(1, math.ceil(parse_quantity(quantity)))

    @property
    def has_devices(self) -> bool:
        """Whether its pods have GPUs, by the names that device plugins give them, such as ``nvidia.com/gpu``."""
        return bool(self.devices)

    @property
    def devices(self) -> dict[str, float]:
        """The GPUs that a pod asks for, by resource name; a shared one (time slicing, MPS) ends in ``/gpu.shared``."""
        amounts = {**self.resources.requests, **self.resources.limits}
        amounts_of_devices = {
            name: parse_quantity(amount) for name, amount in amounts.items() if name.endswith(_DEVICES)
        }
        return {name: amount for name, amount in amounts_of_devices.items() if amount > 0}

    @property
    def machine(self) -> Machine:
        """Memory and scratch space of a trainer."""
        memory = self.resources.limits.get("memory")
        return Machine(
            memory_bytes=int(parse_quantity(memory)) if memory else None,
            scratch_bytes=int(parse_quantity(self.scratch_size)),
        )


class _File(_Model):
    pools: dict[str, Pool] = Field(min_length=1)


def parse_quantity(text: str) -> float:
    """Parse a Kubernetes quantity: ``"500m"`` is 0.5, ``"1Gi"`` is 2³⁰.

    :raises InvalidArgument: when the text is not a quantity.
    """
    match = _QUANTITY.match(text)
    if match is None:
        raise InvalidArgument(field="quantity", value=text, expected="a quantity such as 500m, 2 or 4Gi")
    return float(match.group(1)) * _FACTORS[match.group(2)]


def load_pools(path: Path) -> dict[str, Pool]:
    """Read the pools of a file ``{"pools": {name: {...}}}``.

    :raises InvalidArgument: naming the file, the field and the problem.
    """
    try:
        return parse_pools(json.loads(path.read_text()))
    except (OSError, ValueError) as error:
        raise InvalidArgument(
            field="kubernetes_pools_file", value=str(path), expected=f"a JSON file: {error}"
        ) from None


def parse_pools(value: object) -> dict[str, Pool]:
    """Parse the content of such a file; see `load_pools`."""
    try:
        pools = _File.model_validate(value).pools
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        field = ".".join(str(part) for part in first["loc"]) or "pools"
        raise InvalidArgument(field=field, value="…", expected=f"pools as documented: {first['msg']}") from None
    for name in pools:
        if not _POOL_NAME.match(name):
            expected = "names of lower-case letters, digits and hyphens, at most 63, that begin with a letter"
            raise InvalidArgument(field="pools", value=name, expected=expected)
    return pools


Json = dict[str, Any]

NO_GPU_NODE = "NO_GPU_NODE"


def node_problem(pool_name: str, pool: Pool, nodes: Sequence[Json]) -> str:
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
