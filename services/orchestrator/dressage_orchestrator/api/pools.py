"""The pools of trainers, their capacity and their live runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dressage.api.v1 import session_pb2 as v1
from dressage.api.v1 import session_service_pb2 as pb

from dressage_orchestrator.database import assignments, runs
from dressage_orchestrator.database.engine import ReadTransaction
from dressage_orchestrator.launch.kubernetes.pools import Pool

_CONDITIONS = 2
"""Newest conditions of a run that the list contains; `GetRun` returns all."""


@dataclass(frozen=True)
class Capacity:
    """What a pool gives to its runs.

    :param cores: of one run.
    :param memory_bytes: that one run may use; 0: no limit.
    :param max_runs: at a time; 0: the cluster decides.
    """

    cores: int
    memory_bytes: int = 0
    max_runs: int = 0


class Pools:
    """Lists the pools.

    :param default: name of the default pool.
    :param local: capacity of a pool that has no settings, as all pools of local trainers.
    :param pools: settings of the pools of a cluster.
    """

    def __init__(self, default: str, local: Capacity, pools: Mapping[str, Pool] | None = None) -> None:
        self._default = default
        self._local = local
        self._capacities = {name: _capacity(pool) for name, pool in (pools or {}).items()}

    def read(self, tx: ReadTransaction) -> pb.ListPoolsResponse:
        """Return all pools with their live runs, the default pool first."""
        live = runs.live(tx)
        working = {entry.run: (entry, environment) for entry, environment in assignments.at_work(tx)}
        names = {self._default, *self._capacities, *(row.run.pool for row in live)}
        response = pb.ListPoolsResponse()
        for name in sorted(names, key=lambda name: (name != self._default, name)):
            capacity = self._capacities.get(name, self._local)
            pool = response.pools.add(name=name, default=name == self._default)
            pool.cores, pool.memory_bytes, pool.max_runs = capacity.cores, capacity.memory_bytes, capacity.max_runs
            pool.runs.extend(_run(row, working.get(row.run.name)) for row in live if row.run.pool == name)
        return response


def _run(row: runs.RunRow, working: tuple[v1.Assignment, str] | None) -> pb.PoolRun:
    entry = pb.PoolRun(run=row.run)
    del entry.run.conditions[:-_CONDITIONS]
    if working is not None:
        assignment, entry.environment = working
        entry.steps_per_second = assignment.steps_per_second
        entry.candidates_per_second = assignment.candidates_per_second
    return entry


def _capacity(pool: Pool) -> Capacity:
    return Capacity(cores=pool.usable_cores, memory_bytes=pool.machine.memory_bytes or 0)
