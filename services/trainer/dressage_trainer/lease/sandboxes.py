"""Sandboxed processes for assignments, started ahead: locked down, with their libraries imported, without a target.

A process serves one target of one assignment and then ends, so that no generated code meets another's. The slow part of
its start (the interpreter, numpy, JAX, the simulator) is done while the trainer waits for its next assignment.
"""

from __future__ import annotations

import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import structlog
from dressage.envs.packs import process as pack_process
from dressage.envs.packs.registry import PACKS
from dressage.errors import DressageError
from dressage.sandbox.gpu import gpu_access
from dressage.sandbox.limits import Limits, simulator_limits
from dressage.sandbox.machine import UNKNOWN, Machine
from dressage.sandbox.pipe import MAX_BYTES, Channel
from dressage.sandbox.process import SandboxProcess
from dressage.sandbox.scratch import remove_scratch

_MAX_SPARES = 16


@dataclass(frozen=True)
class SandboxSpec:
    """How a process is started; processes of equal specs are interchangeable until they have a target.

    :param limits: see `SandboxProcess.start`, as for the other fields.
    :param preload: our modules to import ahead.
    """

    limits: Limits
    threads: int = 1
    env: tuple[tuple[str, str], ...] = ()
    read_only: tuple[Path, ...] = ()
    hidden: tuple[Path, ...] = ()
    preload: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()
    max_message_bytes: int = MAX_BYTES
    python: str = ""
    devices: tuple[Path, ...] = ()


def of_pack(spec: SandboxSpec, pack: str, *, with_gpu: bool = False) -> SandboxSpec:
    """Return how the same process is started with the packages of a pack.

    :param with_gpu: give it the GPU of this machine, if there is one.
    :raises FailedPrecondition: if the pack is not installed.
    """
    env = pack_process.variables(pack)
    gpu = gpu_access() if with_gpu else None
    if gpu is not None:
        env |= {**dict(gpu.env), pack_process.DEVICE: pack_process.GPU}
    return replace(
        spec,
        packages=pack_process.import_path(pack),
        read_only=(*pack_process.readable(pack), *(gpu.read_only if gpu else ())),
        devices=gpu.devices if gpu else (),
        python=pack_process.interpreter(pack),
        limits=simulator_limits(PACKS[pack].gigabytes),
        env=tuple(sorted(env.items())),
    )


SpareCounts = Callable[[], Mapping[SandboxSpec, int]]
"""Returns how many processes of each spec to keep ready; called at each `Sandboxes.refill`."""


class Sandboxes:
    """Starts sandboxed processes and keeps spare ones. Its methods block and may be called from any thread.

    :param root: folder of the processes' own folders.
    :param allow_unsandboxed: see `SandboxProcess.start`.
    :param machine: what all processes together may use.
    """

    def __init__(self, root: Path, *, allow_unsandboxed: bool = False, machine: Machine = UNKNOWN) -> None:
        self._root, self._allow_unsandboxed, self._machine = root, allow_unsandboxed, machine
        self._spares: list[tuple[SandboxSpec, SandboxProcess]] = []
        self._uses: dict[str, SpareCounts] = {}
        # Two locks: a process takes seconds to start, and `start` must not wait for a refill.
        self._lock, self._refilling = threading.Lock(), threading.Lock()
        self._closed = False

    def fit(self, limits: Limits) -> Limits:
        """Return the limits that a process gets here: those of its spec, or less on a small machine."""
        return self._machine.fit(limits)

    def keep_ready(self, use: str, counts: SpareCounts) -> None:
        """Set what to keep ready for a use from the next `refill` on, in place of what was set for it before."""
        with self._lock:
            self._uses[use] = counts

    def start(self, spec: SandboxSpec, target: str, *, companion: Channel | None = None) -> SandboxProcess:
        """Return a process of this spec that runs ``target``: a spare one if there is one. End it with `end`.

        :param target: "module:function".
        :param companion: see `SandboxProcess.start`; a process with one is never a spare one.
        :raises FailedPrecondition: see `SandboxProcess.start`.
        """
        while companion is None and (process := self._take(spec)) is not None:
            try:
                process.assign(target)
                return process
            except DressageError:  # it has ended, for example for want of memory
                self.end(process)
        return self._launch(spec, target, companion)

    def end(self, process: SandboxProcess) -> None:
        """End a process that `start` returned, if it has not ended, and remove its folder."""
        process.close()
        remove_scratch(process.scratch)

    def refill(self) -> None:
        """Start the spare processes that are missing, and end those that no use needs any more."""
        with self._refilling:
            self._refill()

    def _refill(self) -> None:
        with self._lock:
            missing: Counter[SandboxSpec] = Counter()
            for counts in [use() for use in self._uses.values()]:
                missing.update(dict(counts))
            spares, surplus = [], []
            for spec, process in self._spares:
                if missing[spec] > 0 and process.poll() is None:
                    missing[spec] -= 1
                    spares.append((spec, process))
                else:
                    surplus.append(process)
            self._spares = spares
        for process in surplus:
            self.end(process)
        for spec in missing.elements():
            self._add(spec)

    def close(self) -> None:
        """End all spare processes, and keep none from now on."""
        with self._lock:
            self._closed = True
            spares, self._spares = self._spares, []
        for _, process in spares:
            self.end(process)

    def _add(self, spec: SandboxSpec) -> None:
        if self._closed or len(self._spares) >= _MAX_SPARES:
            return
        try:
            process = self._launch(spec, None)
        except DressageError as error:  # the assignment that needs one reports it
            structlog.get_logger("dressage.trainer.sandboxes").warning("no spare process", error=error.message)
            return
        with self._lock:
            if not self._closed:
                self._spares.append((spec, process))
                return
        self.end(process)

    def _take(self, spec: SandboxSpec) -> SandboxProcess | None:
        with self._lock:
            for place, (other, process) in enumerate(self._spares):
                if other == spec:
                    del self._spares[place]
                    return process
        return None

    def _launch(self, spec: SandboxSpec, target: str | None, companion: Channel | None = None) -> SandboxProcess:
        self._root.mkdir(parents=True, exist_ok=True)
        folder = Path(tempfile.mkdtemp(prefix="p", dir=self._root))
        try:
            return SandboxProcess.start(
                target,
                limits=self.fit(spec.limits),
                scratch=folder,
                preload=spec.preload,
                read_only=spec.read_only,
                hidden=spec.hidden,
                packages=spec.packages,
                threads=spec.threads,
                env=dict(spec.env),
                max_message_bytes=spec.max_message_bytes,
                devices=spec.devices,
                python=spec.python,
                companion=companion,
                allow_unsandboxed=self._allow_unsandboxed,
            )
        except BaseException:
            remove_scratch(folder)
            raise
