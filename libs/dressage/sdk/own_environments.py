"""Adds an environment of the user's own module, ``gymnasium:MODULE:ID``.

The module is code that Dressage does not know, so that only sandboxed processes import it: the one that describes the
environment here, and those of trainers. A module that is not installed is copied into the environment's folder, which these
processes may read.
"""

from __future__ import annotations

import importlib.util
import shutil
from pathlib import Path

from dressage.envs import adding, custom
from dressage.envs.cards import EnvironmentCard, load_card
from dressage.errors import FailedPrecondition, InvalidArgument
from dressage.sandbox import ChannelClosed, Limits, SandboxProcess
from dressage.sandbox.output import excerpt
from dressage.sandbox.process import import_path
from dressage.sandbox.scratch import scratch_folder
from dressage.sdk.adding_process import FOLDER

_SECONDS = 300.0
_SEND_SECONDS = 30.0
_PROBLEM = 2000
_LIMITS = Limits(wall_seconds=_SECONDS)
_MAX_SOURCE_BYTES = 64 << 20
_IGNORED = shutil.ignore_patterns("__pycache__", ".*", "*.pyc")


def add(env_id: str, *, allow_unsandboxed: bool = False) -> EnvironmentCard:
    """Describe an environment of a module in a sandboxed process and keep it.

    :param env_id: ``gymnasium:MODULE:ID``; the module registers the id with Gymnasium when it is imported.
    :raises InvalidArgument: if there is no such module, or its environment cannot be used; with what the process reports.
    :raises FailedPrecondition: if this kernel has no sandbox, or the process ends.
    """
    folder = custom.folder_of(env_id)
    source = _source(env_id)
    with scratch_folder(prefix="dressage-adding-") as name:
        scratch, copy = name / "scratch", name / custom.SOURCE
        scratch.mkdir()
        copy.mkdir()
        if source is not None:
            _copy(source, copy)
        _describe(env_id, scratch, copy if source is not None else None, allow_unsandboxed=allow_unsandboxed)
        with adding.replacing(folder) as new:
            shutil.copytree(scratch / FOLDER / env_id, new, dirs_exist_ok=True)
            if source is not None:
                shutil.copytree(copy, new / custom.SOURCE)
    return load_card(env_id)


def _describe(env_id: str, scratch: Path, source: Path | None, *, allow_unsandboxed: bool) -> None:
    process = SandboxProcess.start(
        "dressage.sdk.adding_process:serve",
        limits=_LIMITS,
        scratch=scratch,
        read_only=[] if source is None else [source],
        allow_unsandboxed=allow_unsandboxed,
    )
    with process:
        try:
            process.channel.send({"environment": env_id, "source": str(source or "")}, timeout=_SEND_SECONDS)
            problem = excerpt(process.channel.recv(timeout=_SECONDS).get("problem", "no answer"), _PROBLEM)
        except ChannelClosed as error:
            ended = process.wait(_SEND_SECONDS)
            reason = ended.reason if ended is not None else "it does not answer"
            message = f"{env_id} cannot be described in a sandboxed process: {reason}"
            raise FailedPrecondition(message, reason="ENVIRONMENT_FAILED") from error
    if problem:
        raise InvalidArgument(
            field="environment",
            problem=f"cannot be used: {problem}",
            value=env_id,
            expected="a module that registers the id with Gymnasium and that works without network and other files",
        )


def _source(env_id: str) -> Path | None:
    """Return the file or the folder of the module if sandboxed processes cannot import it from where it is.

    :raises InvalidArgument: if there is no such module.
    """
    top = custom.module_of(env_id).partition(".")[0]
    here = Path.cwd()
    for candidate in (here / top, here / f"{top}.py"):
        if (candidate / "__init__.py").is_file() or (candidate.suffix == ".py" and candidate.is_file()):
            return candidate
    spec = importlib.util.find_spec(top)  # of a top-level name: imports nothing
    if spec is None or spec.origin is None:
        expected = "a Python module in the current folder, or an installed one"
        raise InvalidArgument(field="module", problem="not found", value=top, expected=expected)
    origin = Path(spec.origin)
    place = origin.parent if origin.name == "__init__.py" else origin
    return None if str(place.parent) in import_path() else place


def _copy(source: Path, folder: Path) -> None:
    files = [source] if source.is_file() else [path for path in source.rglob("*") if path.is_file()]
    size = sum(path.stat().st_size for path in files)
    if size > _MAX_SOURCE_BYTES:
        expected = f"a module of at most {_MAX_SOURCE_BYTES >> 20} MiB; install larger ones with pip"
        raise InvalidArgument(field="module", value=f"{size} bytes", expected=expected)
    if source.is_file():
        shutil.copy(source, folder / source.name)
    else:
        shutil.copytree(source, folder / source.name, ignore=_IGNORED)
