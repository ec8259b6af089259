"""Compiled kernels of the engines (`dressage.episodes`, `dressage.programs`), compiled once for all sandboxed processes.

A sandboxed process cannot write, so it cannot keep what it compiles. Before the first search or evaluation in an environment a
process of its own compiles that environment's kernels; it loads no generated code. The supervisor moves its files into a
folder that sandboxed processes read. Whoever can write to that folder controls what they run, hence it must be private.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import threading
import time
from dataclasses import replace
from pathlib import Path

import structlog
from dressage.envs.tasks import SIMULATED_IDS
from dressage.episodes.table import COMPILED_IDS
from dressage.episodes.versions import FOLDER_VARIABLE, facts
from dressage.errors import DressageError
from dressage.programs.families import FAMILIES
from dressage.sandbox.limits import GIB, Limits
from dressage.sandbox.process import SandboxProcess

from dressage_trainer.lease.sandboxes import SandboxSpec
from dressage_trainer.speed.compiled import is_private, machine

FOLDER = "kernels"
_SECONDS = 300.0
_MAX_FILES = 20
_MAX_BYTES = 32 * 2**20
_VERSIONS_KEPT = 4
_SIMULATED = "simulated"
"""All of MuJoCo's environments share a kernel."""
_PROGRAMS = "programs"
"""All tasks of programs share their kernels."""


class Kernels:
    """The folder of compiled kernels of this version on this processor. Its methods block and may be called from any thread.

    :param root: folder of compiled code; made if absent; used only if no other user can write to it.
    :param scratch: folder of the compiling process; made and removed.
    """

    def __init__(self, root: Path, *, scratch: Path, allow_unsandboxed: bool = False) -> None:
        key = hashlib.sha256(json.dumps([facts(), machine()], sort_keys=True).encode()).hexdigest()[:32]
        self._root, self._folder = root / FOLDER, root / FOLDER / key
        self._scratch, self._allow_unsandboxed = scratch, allow_unsandboxed
        self._lock, self._failed = threading.Lock(), set[str]()
        self._process: SandboxProcess | None = None
        self._closed = False
        self._log = structlog.get_logger("dressage.trainer.kernels")

    def sandbox(self, spec: SandboxSpec) -> SandboxSpec:
        """Return the spec of a process that reads the kernels; the same spec if there is no folder for them."""
        if not self._usable():
            return spec
        variables = (*spec.env, (FOLDER_VARIABLE, str(self._folder)))
        return replace(spec, env=variables, read_only=(*spec.read_only, self._folder))

    @property
    def folder(self) -> Path | None:
        """The folder; None if another user could write to it."""
        return self._folder if self._usable() else None

    def prepare(self, environment: str) -> None:
        """Compile the kernels of an environment unless they are there; logs a failure, after which processes compile in memory.

        :param environment: any environment; most have no kernels.
        """
        name = _kernels_of(environment)
        if name is None:
            return
        with self._lock:
            if name in self._failed or not self._usable() or (self._folder / f"{name}.ready").exists():
                return
            began = time.monotonic()
            try:
                for path in self._compile(environment):
                    _publish(path, self._folder)
                (self._folder / f"{name}.ready").touch()
                self._prune()
            except (DressageError, OSError) as error:
                self._failed.add(name)
                if not self._closed:
                    self._log.warning("kernels were not compiled ahead", environment=environment, error=str(error))
            else:
                seconds = round(time.monotonic() - began, 1)
                self._log.info("kernels compiled", environment=environment, seconds=seconds)
            finally:
                shutil.rmtree(self._scratch, ignore_errors=True)

    def close(self) -> None:
        """End a compilation in progress."""
        self._closed = True
        if self._process is not None:
            self._process.kill()

    def _usable(self) -> bool:
        """Make the folder if it is absent; return whether no other user can write to it."""
        try:
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as error:
            self._log.warning("compiled kernels are not kept", folder=str(self._folder), error=str(error))
            return False
        if not (is_private(self._root) and is_private(self._folder)):
            self._log.warning("compiled kernels are not kept: other users can write", folder=str(self._folder))
            return False
        return True

    def _compile(self, environment: str) -> list[Path]:
        """Run the compiling process; return the files that it wrote."""
        self._scratch.mkdir(parents=True, exist_ok=True)
        with SandboxProcess.start(
            "dressage_trainer.speed.kernel_warmup:warm",
            limits=Limits(memory_bytes=2 * GIB, wall_seconds=_SECONDS),
            scratch=self._scratch,
            allow_unsandboxed=self._allow_unsandboxed,
        ) as process:
            self._process = process
            if self._closed:
                process.kill()
            process.channel.send({"environment": environment})
            reply = process.channel.recv(timeout=_SECONDS)
        if reply.get("type") != "warmed":
            raise DressageError(f"the warm-up failed: {str(reply.get('message'))[:500]}")
        files = [path for path in sorted((self._scratch / FOLDER).glob("*.kernel")) if not path.is_symlink()]
        if len(files) > _MAX_FILES or sum(path.stat().st_size for path in files) > _MAX_BYTES:
            raise DressageError(f"the warm-up wrote {len(files)} files; expected at most {_MAX_FILES}")
        return files

    def _prune(self) -> None:
        """Delete all but the newest versions' folders."""
        folders = sorted(self._root.iterdir(), key=lambda path: path.stat().st_mtime, reverse=True)
        for folder in folders[_VERSIONS_KEPT:]:
            if folder != self._folder:
                shutil.rmtree(folder, ignore_errors=True)


def _kernels_of(environment: str) -> str | None:
    """Return the name of the kernels that an environment needs; None if it has none."""
    if environment.partition("/")[0] in FAMILIES:  # those of a registered language were compiled when it was registered
        return _PROGRAMS
    if environment in SIMULATED_IDS:
        return _SIMULATED
    return environment if environment in COMPILED_IDS else None


def _publish(path: Path, folder: Path) -> None:
    """Copy a file into the folder, at once or not at all."""
    staging = folder / f".{path.name}.{os.getpid()}"
    shutil.copyfile(path, staging, follow_symlinks=False)
    staging.rename(folder / path.name)
