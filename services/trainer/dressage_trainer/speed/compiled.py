"""Compiled updates that are kept from run to run, so that a session compiles once and not in every iteration.

A learner runs generated code, so it may read these folders but never write to them: machine code that a hostile reward
left behind would run in the next user's learner. Another sandboxed process (`warmup`) fills the cache. It compiles for the
same shapes at the lowest priority once a learner has ended, and loads no generated code. Its files are moved into place all
at once.

A key covers everything that compiled code depends on: shapes, sources, versions, processor and number of threads.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import platform
import shutil
import stat
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import metadata as distributions
from pathlib import Path
from typing import Any

import structlog
from dressage import training
from dressage.envs.cards import load_card
from dressage.errors import DressageError
from dressage.sandbox.limits import GIB, Limits
from dressage.sandbox.process import SandboxProcess

from dressage_trainer.messages import TrainSpec
from dressage_trainer.speed.threads import learner_environment

FOLDER = "compiled"
_PACKAGES = ("dressage", "jax", "jaxlib", "numpy")
_KEPT = 32
_MAX_FILES = 200
_MAX_BYTES = 64 * 2**20
_SECONDS = 60.0
_SHAPES = (
    "num_envs",
    "num_steps",
    "minibatch_size",
    "epochs",
    "hidden_sizes",
    "normalize_observation",
    "normalize_reward",
    "updates_per_step",
)


def default_folder(environment: Mapping[str, str]) -> Path:
    """The folder of compiled updates where none is configured."""
    base = environment.get("XDG_CACHE_HOME") or os.path.join(
        environment.get("HOME") or os.path.expanduser("~"), ".cache"
    )
    return Path(base) / "dressage" / "compiled"


def request_of(spec: TrainSpec) -> dict[str, Any]:
    """Describe the updates of a run to the warm-up: shapes only, no source.

    The environment's sizes are included, because an environment of the user's own may be replaced by one of another size
    under the same id.
    """
    members = [{n: v for n, v in task.hyperparameters.items() if n in _SHAPES} for task in spec.members]
    return {
        "environment": spec.environment,
        "algorithm": spec.algorithm or "ppo",
        "sizes": _sizes(spec.environment),
        "options": dict(spec.options),
        "members": members,
        "threads": spec.threads,
    }


def _sizes(environment: str) -> dict[str, Any]:
    """Sizes of an environment that an update's shapes depend on; none without a card, which the learner rejects."""
    try:
        card = load_card(environment)
    except DressageError:
        return {}
    sizes = {"observation": card.observation_size, "action": card.action_size, "choices": card.num_actions}
    return {**sizes, "action_kind": card.action_kind}


def key_of(request: Mapping[str, Any]) -> str:
    """Return the name of the folder for a request."""
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in sources())).hexdigest()
    facts = {"request": request, "machine": machine(), "sources": digest}
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:32]


def sources() -> list[Path]:
    """List the files that compiled code depends on: PPO and SAC, what runs them, and the presets, since a request names
    only the hyperparameters that differ from these."""
    trainer = Path(__file__).parents[1]
    folders = (trainer / "ppo", trainer / "sac", trainer / "speed", Path(training.__file__).parent)
    return [path for folder in folders for path in sorted(folder.rglob("*")) if path.suffix in (".py", ".toml")]


@cache
def machine() -> dict[str, Any]:
    """Return versions and processor, which compiled code depends on."""
    versions = {name: distributions.version(name) for name in _PACKAGES}
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    except OSError:
        lines = [platform.processor()]
    processor = sorted({line for line in lines if line.startswith(("model name", "flags", "Features"))})
    digest = hashlib.sha256("\n".join(processor).encode()).hexdigest()
    return {"versions": versions, "python": platform.python_version(), "arch": platform.machine(), "cpu": digest}


class Filling:
    """A compilation in progress, which another thread may cancel."""

    def __init__(self) -> None:
        self._process: SandboxProcess | None = None
        self.cancelled = False

    def began(self, process: SandboxProcess) -> None:
        """Record the process that compiles."""
        self._process = process
        if self.cancelled:
            process.kill()

    def cancel(self) -> None:
        """Kill the process; nothing is kept."""
        self.cancelled = True
        if self._process is not None:
            self._process.kill()


@dataclass(frozen=True)
class CompiledCache:
    """Folders of compiled code by key.

    :param root: made if absent; used only if it belongs to this user and no other user can write to it.
    """

    root: Path

    def find(self, key: str) -> Path | None:
        """Return the folder of a key if it is filled and can be trusted."""
        folder = self.root / key
        return folder if is_private(self.root) and is_private(folder) else None

    def fill(
        self,
        key: str,
        request: Mapping[str, Any],
        *,
        scratch: Path,
        seconds: float = _SECONDS,
        filling: Filling | None = None,
        allow_unsandboxed: bool = False,
    ) -> bool:
        """Compile and keep; returns whether `find` succeeds now. Blocks for some seconds; logs a failure and does not raise."""
        log = structlog.get_logger("dressage.trainer.compiled")
        filling = filling or Filling()
        try:
            compiled = _compile(request, scratch, filling, seconds=seconds, allow_unsandboxed=allow_unsandboxed)
            self.root.mkdir(parents=True, exist_ok=True, mode=0o700)
            if not is_private(self.root):
                log.warning("compiled updates are not kept: other users can write to the folder", folder=str(self.root))
                return False
            _keep(compiled, self.root, key)
            self._prune()
        except (DressageError, OSError) as error:
            if not filling.cancelled:
                log.warning("warm-up failed: the next run compiles its update itself", error=str(error))
            return False
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
        return self.find(key) is not None

    def _prune(self) -> None:
        """Delete all but the newest folders."""
        others = ("kernels", "device")  # see `lease.kernels` and `lease.device_kernels`
        folders = [path for path in self.root.iterdir() if path.name not in others]
        folders.sort(key=lambda path: path.stat().st_mtime, reverse=True)
        for folder in folders[_KEPT:]:
            shutil.rmtree(folder, ignore_errors=True)


def is_private(folder: Path) -> bool:
    """Return whether a folder exists and no other user can have written to it."""
    try:
        facts = folder.stat(follow_symlinks=False)
    except OSError:
        return False
    private = not facts.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    return stat.S_ISDIR(facts.st_mode) and facts.st_uid == os.getuid() and private


class Fillings:
    """Fills a cache in the background, for one set of shapes at a time. Its methods belong to one event loop.

    :param scratch: folder of the compiling process; made and removed.
    :param filled: called in a thread when a folder was added.
    """

    def __init__(
        self, cache: CompiledCache, *, scratch: Path, filled: Callable[[], None], allow_unsandboxed: bool = False
    ) -> None:
        self._cache, self._scratch, self._filled = cache, scratch, filled
        self._allow_unsandboxed = allow_unsandboxed
        self._filling = Filling()
        self._task: asyncio.Future[None] | None = None

    def start(self, request: Mapping[str, Any]) -> None:
        """Start to compile for these shapes, unless a compilation is in progress."""
        if self._task is None or self._task.done():
            self._filling = Filling()
            self._task = asyncio.ensure_future(asyncio.to_thread(self._fill, dict(request), self._filling))

    async def close(self, *, seconds: float) -> None:
        """Wait so long for the compilation in progress, then cancel it."""
        if self._task is None:
            return
        await asyncio.wait([self._task], timeout=seconds)
        if not self._task.done():
            await asyncio.to_thread(self._filling.cancel)
        await self._task

    def _fill(self, request: Mapping[str, Any], filling: Filling) -> None:
        allow = self._allow_unsandboxed
        key, scratch = key_of(request), self._scratch
        if self._cache.fill(key, request, scratch=scratch, filling=filling, allow_unsandboxed=allow):
            self._filled()


def _compile(
    request: Mapping[str, Any], scratch: Path, filling: Filling, *, seconds: float, allow_unsandboxed: bool
) -> Sequence[Path]:
    """Run the warm-up and return the files that it wrote."""
    scratch.mkdir(parents=True, exist_ok=True)
    threads = int(request["threads"])
    with SandboxProcess.start(
        "dressage_trainer.speed.warmup:warm",
        limits=Limits(memory_bytes=4 * GIB, wall_seconds=seconds),
        scratch=scratch,
        threads=threads,
        env=learner_environment(),
        allow_unsandboxed=allow_unsandboxed,
    ) as process:
        filling.began(process)
        os.setpriority(os.PRIO_PROCESS, process.pid, 19)
        process.channel.send(dict(request))
        reply = process.channel.recv(timeout=seconds)
    if reply.get("type") != "warmed":
        raise DressageError(f"the warm-up failed: {str(reply.get('message'))[:500]}")
    return [path for path in sorted((scratch / FOLDER).iterdir()) if path.is_file() and not path.is_symlink()]


def _keep(files: Sequence[Path], root: Path, key: str) -> None:
    """Move the files to ``root/key``, all at once or not at all."""
    if not files or len(files) > _MAX_FILES or sum(path.stat().st_size for path in files) > _MAX_BYTES:
        raise DressageError(
            f"the warm-up wrote {len(files)} files; expected 1 to {_MAX_FILES} with at most {_MAX_BYTES:,} bytes together"
        )
    staging = root / f".{key}.{os.getpid()}"
    shutil.rmtree(staging, ignore_errors=True)
    staging.mkdir(mode=0o700)
    try:
        for path in files:
            shutil.copyfile(path, staging / path.name, follow_symlinks=False)
        if not (root / key).exists():
            staging.rename(root / key)
    finally:
        shutil.rmtree(staging, ignore_errors=True)
