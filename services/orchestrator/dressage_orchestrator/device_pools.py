"""Pools of devices: which there are, and which sessions train on a pool of CPU cores instead, with the reason."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import structlog
from dressage.api.v1 import session_pb2 as v1
from dressage.errors import DressageError, FailedPrecondition
from dressage.installation import install_command
from dressage.training.device_rates import device_rates, nearest

from dressage_orchestrator.clients import JudgeClient
from dressage_orchestrator.launch.kubernetes.pools import Pool
from dressage_orchestrator.lifecycle.method import Estimate, Method

LOCAL = "gpu"
"""Name of the pool of devices where trainers are local processes."""
_SLOW = (
    f"pool {LOCAL}: this machine has no GPU, so MuJoCo Warp simulates on the CPU, which is far slower than the pool of CPU "
    "cores; use it for tests of a few environments"
)
_DEVICE_FILE = Path("/dev/nvidiactl")


@dataclass(frozen=True)
class DevicePools:
    """Which pools have devices, and where proposals train that need none.

    :param names: names of the pools whose trainers have a device.
    :param cpu: name of the pool of CPU cores; empty: there is none, and proposals stay where they are.
    :param automatic: whether a session that names no pool may get one of them.
    :param missing: why a session that names one is refused; empty: it is not.
    :param caution: what the user should know of them; empty: nothing.
    """

    names: frozenset[str] = frozenset()
    cpu: str = ""
    automatic: bool = False
    missing: str = ""
    caution: str = ""

    @classmethod
    def of(cls, pools: Mapping[str, Pool], default: str) -> DevicePools:
        """Return those among configured pools.

        :param default: the default pool, which takes precedence among pools of CPU cores.
        """
        devices = frozenset(name for name, pool in pools.items() if pool.has_devices)
        others = sorted(set(pools) - devices, key=lambda name: (name != default, name))
        return cls(devices, others[0] if others else "", automatic=bool(devices))

    @classmethod
    def local(cls, default: str, *, installed: bool, has_gpu: bool) -> DevicePools:
        """Return the pool ``gpu`` of local trainers: this machine's GPU, or the CPU device of MuJoCo Warp where it has none.

        :param default: name of the pool of CPU cores.
        :param installed: whether MuJoCo Warp is.
        """
        missing = "" if installed else f"it needs MuJoCo Warp, which is not installed: {install_command('warp')}"
        names, cpu = frozenset({LOCAL}), "" if default == LOCAL else default
        return cls(names, cpu, automatic=installed and has_gpu, missing=missing, caution="" if has_gpu else _SLOW)

    @classmethod
    def here(cls, default: str) -> DevicePools:
        """Return `local` of this machine."""
        return cls.local(default, installed=find_spec("mujoco_warp") is not None, has_gpu=_DEVICE_FILE.exists())

    def rate_keys(self, estimate: Estimate, pool: str) -> tuple[str, ...]:
        """Return the keys of measured rates that count for a training on a pool, the best one first.

        A device's speed depends on the load; on CPU cores a rate of another load is better than none.
        """
        of_load = (estimate.load.of_kind(estimate.kind),) if estimate.load else ()
        return of_load if pool in self.names or not estimate.kind else (*of_load, estimate.kind)

    async def place(self, spec: v1.SessionSpec, method: Method, judge: JudgeClient) -> Placement:
        """Set another pool in a spec with defaults whose proposal its pool of devices cannot train.

        :raises FailedPrecondition: where trainers cannot use the device.
        """
        if spec.pool not in self.names:
            return Placement()
        try:
            obstacle = await method.device_obstacle(spec, judge=judge)
        except DressageError as error:
            # The session makes the check again, and reports an outage or a faulty proposal itself.
            structlog.get_logger("dressage.sessions").warning("not examined for devices", error=error.message)
            return Placement(note=self.caution)
        if obstacle.text and obstacle.moves and self.cpu:
            pool, spec.pool = spec.pool, self.cpu
            text = f"pool {self.cpu} instead of {pool}: {obstacle.text}"
            return Placement(note=text, moved=True)
        if self.missing:
            raise FailedPrecondition(f"pool {spec.pool}: {self.missing}", reason="WARP_NOT_INSTALLED")
        return Placement(note="; ".join(filter(None, (obstacle.text, self.caution))))


@dataclass(frozen=True)
class Placement:
    """On which pool a session trains.

    :param note: what the user should know of it, for the plan; empty: nothing.
    :param moved: whether it is another pool than the one that was asked for.
    """

    note: str = ""
    moved: bool = False


NO_DEVICES = DevicePools()
"""All pools are pools of CPU cores."""


@dataclass(frozen=True)
class Offer:
    """A pool that a session could train on.

    :param spec: with defaults for this pool.
    :param estimate: of an iteration there.
    :param rate: measured environment steps per second of such trainings there; None: none was measured.
    :param source: where it was measured.
    """

    spec: v1.SessionSpec
    estimate: Estimate
    rate: float | None
    source: str = "measured"


def offer_of(spec: v1.SessionSpec, estimate: Estimate, rate: float | None, *, on_device: bool) -> Offer:
    """Return an offer, with the rate of a committed measurement on a GPU where the server has none of its own.

    :param rate: of earlier trainings of the server.
    """
    load, environment = estimate.load, spec.environment.removeprefix("environments/")
    if rate is None and on_device and load is not None:
        entry = nearest(device_rates(), environment, members=load.members, worlds=load.worlds)
        if entry is not None:
            source = f"measured on another machine: {entry.device}, {entry.worlds:,} environments, {entry.source}"
            return Offer(spec, estimate, entry.effective(load.members * load.steps), source)
    return Offer(spec, estimate, rate)


def faster(cpu: Offer, device: Offer, seconds: Callable[[Offer], float]) -> tuple[Offer, str]:
    """Return the pool on which an iteration takes less time by measured rates, and the reason.

    :param seconds: expected duration of an iteration.
    """
    environment = cpu.spec.environment.removeprefix("environments/")
    if device.rate is None:
        pool, load = device.spec.pool, device.estimate.load
        of_load = f" with {load.text()}" if load else ""
        return cpu, (
            f"pool {cpu.spec.pool}: no rate of a GPU is measured: no training in {environment}{of_load} was measured on pool "
            f"{pool} yet; `--pool {pool}` measures one"
        )
    chosen, other = sorted((cpu, device), key=seconds)
    times = [f"{seconds(offer) / 60:.2g} min on pool {offer.spec.pool}{_at(offer)}" for offer in (chosen, other)]
    return chosen, f"pool {chosen.spec.pool}: an iteration takes about {times[0]}, and {times[1]}"


def _at(offer: Offer) -> str:
    steps = f"{offer.estimate.env_steps:,} steps"
    if offer.rate is None:
        return f" ({steps}; not measured)"
    return f" ({steps} at {offer.rate:,.0f} steps/s, {offer.source})"
