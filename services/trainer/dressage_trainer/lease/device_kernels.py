"""Kernels of MuJoCo Warp, compiled once for all learners on a device.

A process of its own compiles an environment's kernels before the first training there; it loads no generated code. Each
learner gets a copy in its own folder as Warp's cache, which it may write to: a kernel that is missing is compiled there and is
gone with the learner. Warp finds kernels by the hash of their source, so that a copy of another version is never used.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import structlog
from dressage.errors import DressageError
from dressage.sandbox.gpu import gpu_access
from dressage.sandbox.limits import GIB, Limits
from dressage.sandbox.process import SandboxProcess

from dressage_trainer.speed.compiled import is_private, machine
from dressage_trainer.speed.device_warmup import FOLDER
from dressage_trainer.speed.threads import learner_environment

DEVICE_FOLDER = "device"
_SECONDS = 3600.0
_MAX_BYTES = 512 * 2**20
_KEPT = 16


class DeviceKernels:
    """Folders of compiled kernels, one for each environment on this machine. Its methods block and are safe in any thread.

    :param root: folder of compiled code; made if absent; used only if no other user can write to it.
    :param scratch: folder of the compiling process; made and removed.
    """

    def __init__(self, root: Path, *, scratch: Path, allow_unsandboxed: bool = False) -> None:
        self._root, self._scratch, self._allow_unsandboxed = root / DEVICE_FOLDER, scratch, allow_unsandboxed
        self._lock = threading.Lock()
        self._process: SandboxProcess | None = None
        self._closed = False
        self._log = structlog.get_logger("dressage.trainer.kernels")

    def prepare(self, environment: str, options: Mapping[str, Any], *, sizes: Mapping[str, Any]) -> Path | None:
        """Compile an environment's kernels unless they are there; return their folder.

        :param sizes: of the environment: a model of the user's may have been replaced under its name.
        :returns: None if they cannot be kept, which is logged: each learner then compiles its own.
        """
        facts = json.dumps([environment, dict(sizes), machine(), gpu_access() is not None], sort_keys=True)
        folder = self._root / hashlib.sha256(facts.encode()).hexdigest()[:32]
        with self._lock:
            if is_private(self._root) and is_private(folder):
                return folder
            began = time.monotonic()
            try:
                self._root.mkdir(parents=True, exist_ok=True, mode=0o700)
                if not (is_private(self._root.parent) and is_private(self._root)):
                    raise DressageError(f"other users can write to {self._root}")
                self._compile(environment, options)
                self._keep(folder)
            except (DressageError, OSError) as error:
                if not self._closed:
                    self._log.warning("kernels were not compiled ahead", environment=environment, error=str(error))
                return None
            finally:
                shutil.rmtree(self._scratch, ignore_errors=True)
            seconds = round(time.monotonic() - began, 1)
            self._log.info("kernels of the device compiled", environment=environment, seconds=seconds)
            return folder

    def close(self) -> None:
        """End a compilation in progress."""
        self._closed = True
        if self._process is not None:
            self._process.kill()

    def _compile(self, environment: str, options: Mapping[str, Any]) -> None:
        self._scratch.mkdir(parents=True, exist_ok=True)
        access = gpu_access()
        with SandboxProcess.start(
            "dressage_trainer.speed.device_warmup:warm",
            limits=Limits(memory_bytes=4 * GIB, wall_seconds=_SECONDS),
            scratch=self._scratch,
            env={
                **learner_environment(on_gpu=access is not None),
                **dict(access.env if access else ()),
                "WARP_CACHE_PATH": FOLDER,
            },
            read_only=access.read_only if access else (),
            devices=access.devices if access else (),
            allow_unsandboxed=self._allow_unsandboxed,
        ) as process:
            self._process = process
            if self._closed:
                process.kill()
            process.channel.send({"environment": environment, "options": dict(options)})
            reply = process.channel.recv(timeout=_SECONDS)
        if reply.get("type") != "warmed":
            raise DressageError(f"the warm-up failed: {str(reply.get('message'))[:500]}")

    def _keep(self, folder: Path) -> None:
        """Copy the files to ``folder``, all at once or not at all, and delete all but the newest folders."""
        written = self._scratch / FOLDER
        files = [path for path in written.rglob("*") if path.is_file()]
        if any(path.is_symlink() for path in written.rglob("*")) or not files:
            raise DressageError("the warm-up left no kernels, or links")
        if sum(path.stat().st_size for path in files) > _MAX_BYTES:
            raise DressageError(f"the warm-up wrote more than {_MAX_BYTES:,} bytes")
        staging = folder.with_name(f".{folder.name}")
        shutil.rmtree(staging, ignore_errors=True)
        shutil.copytree(written, staging)
        staging.chmod(0o700)
        staging.rename(folder)
        folders = sorted(self._root.iterdir(), key=lambda path: path.stat().st_mtime, reverse=True)
        for old in folders[_KEPT:]:
            shutil.rmtree(old, ignore_errors=True)


def place_kernels(kernels: Path | None, scratch: Path) -> None:
    """Give a learner its copy.

    :param kernels: from `DeviceKernels.prepare`.
    :param scratch: the learner's folder.
    """
    if kernels is not None:
        shutil.copytree(kernels, scratch / FOLDER, dirs_exist_ok=True)
