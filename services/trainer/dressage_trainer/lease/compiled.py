"""Machine code that is compiled once for all trainers of this machine: updates of trainings, kernels of the engines
(`dressage.episodes`, `dressage.programs`) and kernels of MuJoCo Warp.

A process that runs generated code may read these folders but never write to them: machine code that a hostile reward left
behind would run in the next user's process. A sandboxed process of its own (`speed.warmup`) compiles and loads no generated
code. The supervisor copies its files into a folder that no other user can write to, each at once; a marker, written last,
means that they are complete.

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
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib import metadata as distributions
from pathlib import Path
from typing import Any

import structlog
from dressage import training
from dressage.envs.cards import load_card
from dressage.envs.rules import RULED_IDS
from dressage.envs.tasks import SIMULATED_IDS
from dressage.episodes.versions import FOLDER_VARIABLE, facts
from dressage.errors import DressageError
from dressage.programs.families import FAMILIES
from dressage.sandbox.gpu import gpu_access
from dressage.sandbox.limits import GIB, Limits
from dressage.sandbox.output import excerpt
from dressage.sandbox.process import SandboxProcess
from dressage.training.preset import load_preset

from dressage_trainer.lease.sandboxes import Sandboxes, SandboxSpec
from dressage_trainer.messages import TrainSpec
from dressage_trainer.speed.threads import learner_environment

_COMPILE = "dressage_trainer.speed.warmup:warm"
_PACKAGES = ("dressage", "jax", "jaxlib", "numpy")
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


@dataclass(frozen=True)
class Kind:
    """A kind of compiled code, and what is accepted from the process that compiles it.

    :param folder: name of its folder below the root, and in the process's own.
    :param max_folders: folders; older ones are deleted.
    :param waited_for: whether an assignment waits for it; what is compiled ahead has the lowest priority.
    """

    folder: str
    limits: Limits
    max_files: int
    max_bytes: int
    max_folders: int
    waited_for: bool = True


UPDATES = Kind(
    "updates", Limits(memory_bytes=4 * GIB, wall_seconds=60.0), 200, 64 << 20, max_folders=32, waited_for=False
)
KERNELS = Kind("kernels", Limits(memory_bytes=2 * GIB, wall_seconds=300.0), 20, 32 << 20, max_folders=4)
WARP = Kind("warp", Limits(memory_bytes=4 * GIB, wall_seconds=3600.0), 10_000, 512 << 20, max_folders=16)


@dataclass(frozen=True)
class Code:
    """What is compiled together.

    :param key: name of its folder, below that of its kind.
    :param name: of these files; the folder may hold others too.
    :param request: to the process that compiles, see `speed.warmup`: shapes only, no source.
    :param sandbox: how that process is started.
    """

    kind: Kind
    key: str
    name: str
    request: Mapping[str, Any]
    sandbox: SandboxSpec

    @property
    def marker(self) -> str:
        """Name of the file that exists once all are there."""
        return f"{self.name}.ready"


def default_folder(environment: Mapping[str, str]) -> Path:
    """The folder of compiled code where none is configured."""
    home = environment.get("HOME") or os.path.expanduser("~")
    return Path(environment.get("XDG_CACHE_HOME") or os.path.join(home, ".cache")) / "dressage" / "compiled"


def updates_of(spec: TrainSpec) -> Code:
    """Return the updates of a training, by their shapes.

    The environment's sizes are part of the key: one of the user's own may be replaced by another under the same id.
    """
    request = {
        "environment": spec.environment,
        "algorithm": spec.algorithm or "ppo",
        "sizes": _sizes(spec.environment),
        "options": dict(spec.options),
        "members": [{n: v for n, v in task.hyperparameters.items() if n in _SHAPES} for task in spec.members],
        "threads": spec.threads,
    }
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in sources())).hexdigest()
    preset = load_preset(spec.environment)  # a request names only the hyperparameters that differ from it
    presets = [preset.ppo.to_dict(), preset.sac.to_dict()]
    environment = tuple(sorted(learner_environment().items()))
    sandbox = SandboxSpec(limits=UPDATES.limits, threads=spec.threads, env=environment)
    return Code(UPDATES, _key(request, digest, presets), "updates", request, sandbox)


def kernels_of(environment: str) -> Code | None:
    """Return the kernels of the engines that an environment needs; None if it has none."""
    if environment.partition("/")[0] in FAMILIES:  # those of a registered language were compiled when it was registered
        name = "programs"  # all tasks of programs share their kernels
    elif environment in SIMULATED_IDS:
        name = "simulated"  # all of MuJoCo's environments share one
    elif environment in RULED_IDS:
        name = environment
    else:
        return None
    sandbox = SandboxSpec(limits=KERNELS.limits)
    return Code(KERNELS, _kernels_key(), name, {"environment": environment}, sandbox)


def warp_kernels_of(spec: TrainSpec) -> Code:
    """Return MuJoCo Warp's kernels of a training's environment."""
    access = gpu_access()
    variables = {**learner_environment(on_gpu=access is not None), "WARP_CACHE_PATH": WARP.folder}
    sandbox = SandboxSpec(
        limits=WARP.limits,
        env=tuple(sorted({**variables, **dict(access.env if access else ())}.items())),
        read_only=access.read_only if access else (),
        devices=access.devices if access else (),
    )
    request = {"environment": spec.environment, "options": dict(spec.options)}
    key = _key(spec.environment, _sizes(spec.environment), access is not None)
    return Code(WARP, key, "warp", request, sandbox)


def _sizes(environment: str) -> dict[str, Any]:
    """Sizes of an environment that an update's shapes depend on; none without a card, which the learner rejects."""
    try:
        card = load_card(environment)
    except DressageError:
        return {}
    sizes = {"observation": card.observation_size, "action": card.action_size, "choices": card.num_actions}
    return {**sizes, "action_kind": card.action_kind}


def _kernels_key() -> str:
    return _key(facts())


def _key(*parts: Any) -> str:
    return hashlib.sha256(json.dumps([*parts, machine()], sort_keys=True).encode()).hexdigest()[:32]


def sources() -> list[Path]:
    """List the files that compiled updates depend on: PPO and SAC, what runs them, and the rules of hyperparameters."""
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
    # Machine code uses the instructions of the processor that compiled it, and crashes on one without them.
    processor = sorted({line for line in lines if line.startswith(("model name", "flags", "Features"))})
    digest = hashlib.sha256("\n".join(processor).encode()).hexdigest()
    return {"versions": versions, "python": platform.python_version(), "arch": platform.machine(), "cpu": digest}


class CompiledCache:
    """Folders of compiled code. Its methods block and may be called from any thread.

    :param root: made if absent; used only if it belongs to this user and no other user can write to it.
    :param sandboxes: start the processes that compile; None: nothing is compiled.
    """

    def __init__(self, root: Path, sandboxes: Sandboxes | None = None) -> None:
        self._root, self._sandboxes = root, sandboxes
        self._locks: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)
        self._failed: set[tuple[str, str]] = set()
        self._processes: set[SandboxProcess] = set()
        self._closed = False
        self._log = structlog.get_logger("dressage.trainer.compiled")

    def find(self, code: Code) -> Path | None:
        """Return the folder of code that was compiled before and can be trusted."""
        folder = self._root / code.kind.folder / code.key
        trusted = all(is_private(path) for path in (self._root, folder.parent, folder))
        return folder if trusted and (folder / code.marker).exists() else None

    def prepare(self, code: Code) -> Path | None:
        """Compile unless that was done before, and return the folder.

        :returns: None if that fails or the folder cannot be trusted, which is logged; processes then compile for themselves.
            What an assignment waits for is tried once; what is compiled ahead again the next time.
        """
        # One compilation of a kind at a time: a second caller finds the first's files.
        with self._locks[code.kind.folder]:
            if (folder := self.find(code)) or (code.key, code.name) in self._failed or self._sandboxes is None:
                return folder
            began = time.monotonic()
            try:
                folder = self._private_folder(code.kind, code.key)
                if folder is None:
                    return None
                self._compile(code, folder, self._sandboxes)
                self._prune(folder, code.kind.max_folders)
            except (DressageError, OSError) as error:
                if code.kind.waited_for:
                    self._failed.add((code.key, code.name))
                if not self._closed:
                    self._log.warning("not compiled ahead", kind=code.kind.folder, name=code.name, error=str(error))
                return None
            seconds = round(time.monotonic() - began, 1)
            self._log.info("compiled", kind=code.kind.folder, name=code.name, seconds=seconds)
            return folder

    def prepare_kernels(self, environment: str) -> None:
        """Compile the engines' kernels of an environment, if it has any."""
        if (code := kernels_of(environment)) is not None:
            self.prepare(code)

    @property
    def kernels(self) -> Path | None:
        """The folder of the engines' kernels, of all environments; None if another user could write to it."""
        return self._private_folder(KERNELS, _kernels_key())

    def with_kernels(self, spec: SandboxSpec) -> SandboxSpec:
        """Return the spec of a process that reads the engines' kernels; the same spec if there is no folder for them."""
        folder = self.kernels
        if folder is None:
            return spec
        variables = (*spec.env, (FOLDER_VARIABLE, str(folder)))
        return replace(spec, env=variables, read_only=(*spec.read_only, folder))

    def close(self) -> None:
        """End compilations in progress; nothing of them is kept."""
        self._closed = True
        for process in list(self._processes):
            process.kill()

    def _private_folder(self, kind: Kind, key: str) -> Path | None:
        """Make a folder if it is absent; return it unless another user can write there."""
        folder = self._root / kind.folder / key
        folders = (self._root, folder.parent, folder)
        try:
            self._root.parent.mkdir(parents=True, exist_ok=True)
            for path in folders:
                path.mkdir(exist_ok=True, mode=0o700)
        except OSError as error:
            self._log.warning("compiled code is not kept", folder=str(folder), error=str(error))
            return None
        if not all(is_private(path) for path in folders):
            self._log.warning("compiled code is not kept: other users can write to the folder", folder=str(folder))
            return None
        return folder

    def _compile(self, code: Code, folder: Path, sandboxes: Sandboxes) -> None:
        process = sandboxes.start(code.sandbox, _COMPILE)
        self._processes.add(process)
        try:
            if self._closed:
                process.kill()
            if not code.kind.waited_for:  # a training runs meanwhile, which it must not slow down (decision 0015)
                os.setpriority(os.PRIO_PROCESS, process.pid, 19)
            process.channel.send({"kind": code.kind.folder, **code.request})
            reply = process.channel.recv(timeout=code.sandbox.limits.wall_seconds)
            process.close()
            if reply.get("type") != "warmed":
                raise DressageError(f"the warm-up failed: {excerpt(reply.get('message'), 500)}")
            _publish(code, process.scratch / code.kind.folder, folder)
        finally:
            self._processes.discard(process)
            sandboxes.end(process)

    def _prune(self, current: Path, max_folders: int) -> None:
        """Delete all but the newest folders of a kind."""
        others = [path for path in current.parent.iterdir() if path != current]
        others.sort(key=lambda path: path.stat().st_mtime, reverse=True)
        for folder in others[max_folders - 1 :]:
            shutil.rmtree(folder, ignore_errors=True)


def is_private(folder: Path) -> bool:
    """Return whether a folder exists and no other user can have written to it."""
    try:
        status = folder.stat(follow_symlinks=False)
    except OSError:
        return False
    private = not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid() and private


def _publish(code: Code, source: Path, folder: Path) -> None:
    """Copy what a process wrote, each file at once or not at all, and the marker last."""
    paths = sorted(source.rglob("*"))
    files = [path for path in paths if path.is_file()]
    # Kernels are pickles: whoever writes here controls what sandboxed processes run (decision 0039).
    if any(path.is_symlink() for path in paths) or not 0 < len(files) <= code.kind.max_files:
        raise DressageError(f"the warm-up wrote links or {len(files)} files; expected 1 to {code.kind.max_files} files")
    if sum(path.stat().st_size for path in files) > code.kind.max_bytes:
        raise DressageError(f"the warm-up wrote more than {code.kind.max_bytes:,} bytes")
    for path in files:
        target = folder / path.relative_to(source)
        target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        staging = target.with_name(f".{target.name}.{os.getpid()}")
        shutil.copyfile(path, staging, follow_symlinks=False)
        staging.rename(target)
    (folder / code.marker).touch()


class Fillings:
    """Compiles in the background, one thing at a time. Its methods belong to one event loop.

    :param filled: called in a thread when a folder was added.
    """

    def __init__(self, cache: CompiledCache, *, filled: Callable[[], None]) -> None:
        self._cache, self._filled = cache, filled
        self._task: asyncio.Future[None] | None = None

    def start(self, code: Code) -> None:
        """Start to compile, unless a compilation is in progress."""
        if self._task is None or self._task.done():
            self._task = asyncio.ensure_future(asyncio.to_thread(self._fill, code))

    def _fill(self, code: Code) -> None:
        if self._cache.prepare(code) is not None:
            self._filled()

    async def close(self, *, seconds: float) -> None:
        """Wait so long for the compilation in progress, then end all of the cache's."""
        if self._task is not None:
            await asyncio.wait([self._task], timeout=seconds)
        await asyncio.to_thread(self._cache.close)
        if self._task is not None:
            await self._task


def place_warp_kernels(kernels: Path | None, scratch: Path) -> None:
    """Give a learner on a device its own copy, which it may write to: a kernel that is missing is compiled there and is gone
    with the learner. Warp finds kernels by the hash of their source, so that a copy of another version is never used.

    :param kernels: from `CompiledCache.prepare`.
    :param scratch: the learner's folder.
    """
    if kernels is not None:
        shutil.copytree(kernels, scratch / WARP.folder, dirs_exist_ok=True)
