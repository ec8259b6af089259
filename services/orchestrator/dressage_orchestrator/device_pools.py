"""Pools of devices: a caller's proposal that cannot be compiled for a device is trained on a pool of CPU cores."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import structlog
from dressage.api.v1 import session_pb2 as v1
from dressage.errors import DressageError

from dressage_orchestrator.clients import JudgeClient
from dressage_orchestrator.launch.kubernetes.pools import Pool
from dressage_orchestrator.lifecycle.method import Method


@dataclass(frozen=True)
class DevicePools:
    """Which pools have devices, and where proposals train that need none.

    :param names: names of the pools whose pods have a device.
    :param cpu: name of the pool of CPU cores; empty: there is none, and proposals stay where they are.
    """

    names: frozenset[str] = frozenset()
    cpu: str = ""

    @classmethod
    def of(cls, pools: Mapping[str, Pool] | None, default: str) -> DevicePools:
        """Return those among configured pools; None: trainers are local processes, without devices.

        :param default: the default pool, which takes precedence among pools of CPU cores.
        """
        configured = pools or {}
        devices = frozenset(name for name, pool in configured.items() if pool.has_devices)
        others = sorted(set(configured) - devices, key=lambda name: (name != default, name))
        return cls(devices, others[0] if others else "")

    async def place(self, spec: v1.SessionSpec, method: Method, judge: JudgeClient) -> str:
        """Set another pool in a spec with defaults whose proposal its pool of devices cannot train.

        :returns: what the user should know of it, for the plan; empty: nothing.
        """
        if spec.pool not in self.names:
            return ""
        try:
            obstacle = await method.device_obstacle(spec, judge=judge)
        except DressageError as error:
            # The session makes the check again, and reports an outage or a faulty proposal itself.
            structlog.get_logger("dressage.sessions").warning("not examined for devices", error=error.message)
            return ""
        if not obstacle.text:
            return ""
        if not obstacle.moves or not self.cpu:
            return obstacle.text
        pool, spec.pool = spec.pool, self.cpu
        return f"pool {self.cpu} instead of {pool}: {obstacle.text}"


NO_DEVICES = DevicePools()
"""All pools are pools of CPU cores."""
