"""Registers a plug-in: a sandboxed process describes and tries it, and this one keeps what it found as data.

The folder ``languages/NAME`` below ``$DRESSAGE_ENVIRONMENTS`` has ``language.json``, the card of each task, a copy of the code
unless it is installed, and the kernels that the sandboxed process compiled. It appears whole or not at all.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

from dressage.envs import custom
from dressage.errors import FailedPrecondition, InvalidArgument, NotFound
from dressage.programs.cards import build_card, card_text
from dressage.programs.families import CORRECTED, FAMILIES, ProgramTask
from dressage.programs.languages import sandboxed
from dressage.programs.languages.description import Code, Description
from dressage.programs.languages.failures import FAILED, process_error
from dressage.programs.languages.loading import CODE, KERNELS, digest_of
from dressage.programs.languages.registered import RegisteredFamily
from dressage.programs.languages.store import DESCRIPTION_FILE, read_description
from dressage.sandbox.limits import GIB, Limits
from dressage.sandbox.output import excerpt
from dressage.sandbox.pipe import ChannelClosed
from dressage.sandbox.process import SandboxProcess

GROUP = "dressage.programs"
"""Group of the entry points of plug-ins."""
SECONDS = 600.0
"""Longest time of a registration; compiling takes 20 s on two idle cores."""
_LIMITS = Limits(memory_bytes=2 * GIB, wall_seconds=SECONDS, file_bytes=GIB)
_MAX_FILES, _MAX_BYTES = 200, 16 * 2**20
_MAX_KERNELS, _MAX_KERNEL_BYTES = 20, 32 * 2**20
_TARGET = "dressage.programs.languages.process:register"


def register(source: str, report: Callable[[str], None]) -> Description:
    """Register a plug-in; a language of its name is replaced.

    :param source: path of a module or a package, name of an entry point, or ``module:ATTRIBUTE`` of an installed module.
    :param report: called with what is tried next.
    :raises InvalidArgument: for a plug-in that does not work, naming its part.
    :raises DressageError: if its code ends the process, or does not end in time.
    """
    root = custom.language_folder("").parent / custom.LANGUAGES
    root.mkdir(parents=True, exist_ok=True, mode=0o700)
    with tempfile.TemporaryDirectory(prefix=".registering-", dir=root) as temporary:
        new, scratch = Path(temporary) / "new", Path(temporary) / "scratch"
        new.mkdir()
        scratch.mkdir()
        code = _code_of(source, new)
        description = _describe(code, new, scratch, report)
        if description.name in FAMILIES:
            expected = f"another name than {', '.join(FAMILIES)}"
            raise InvalidArgument(field="name", problem="taken", value=description.name, expected=expected)
        _keep_kernels(scratch / KERNELS, new / KERNELS)
        text = json.dumps(description.to_dict(), indent=1, ensure_ascii=False) + "\n"
        (new / DESCRIPTION_FILE).write_text(text, "utf-8")
        _write_cards(description, new / custom.CARDS)
        _replace(root / description.name, new, Path(temporary) / "old")
    return description


def unregister(name: str) -> None:
    """Remove a registered language.

    :raises NotFound: if there is none of this name.
    """
    if name not in custom.language_names():
        names = ", ".join(custom.language_names()) or "none"
        message = f"unknown language {name[:60]!r}; registered languages: {names}"
        raise NotFound(message, reason="LANGUAGE_NOT_FOUND")
    folder = custom.language_folder(name)
    gone = Path(tempfile.mkdtemp(prefix=".removing-", dir=folder.parent))
    folder.rename(gone / name)
    shutil.rmtree(gone, ignore_errors=True)


def _code_of(source: str, new: Path) -> Code:
    """Return where the code is; a module given by its path is copied first.

    :raises InvalidArgument: for a path that is no module.
    """
    path = Path(source).expanduser()
    if os.sep in source or source.endswith(".py") or path.is_dir():
        return _copy_module(path, new / CODE)
    for entry in metadata.entry_points(group=GROUP):
        if entry.name == source:
            return Code(entry.module, entry.attr or "PLUGIN", copied=False)
    module, _, attribute = source.partition(":")
    values = {"module": module, "attribute": attribute or "PLUGIN", "copied": False, "version": ""}
    try:
        return Code.from_dict(values)
    except InvalidArgument as error:
        expected = f"the path of a module, an entry point of {GROUP}, or an installed module as MODULE:ATTRIBUTE"
        raise InvalidArgument(field="SOURCE", problem="not found", value=source, expected=expected) from error


def _copy_module(path: Path, target: Path) -> Code:
    name = path.stem if path.is_file() else path.resolve().name
    module = path if path.is_file() else path / "__init__.py"
    if not module.is_file() or module.suffix != ".py" or not name.isidentifier():
        expected = "a .py file, or a folder with __init__.py, whose name is an identifier"
        raise InvalidArgument(field="SOURCE", problem="no module", value=str(path), expected=expected)
    files = [path] if path.is_file() else [file for file in sorted(path.rglob("*")) if _belongs(file)]
    size = sum(file.stat().st_size for file in files)
    if len(files) > _MAX_FILES or size > _MAX_BYTES:
        expected = f"at most {_MAX_FILES} files and {_MAX_BYTES} bytes"
        raise InvalidArgument(field="SOURCE", value=f"{len(files)} files, {size} bytes", expected=expected)
    for file in files:
        place = target / (file.name if path.is_file() else Path(name) / file.relative_to(path))
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, place)
    return Code(name, version=digest_of(target))


def _belongs(file: Path) -> bool:
    hidden = any(part.startswith(".") or part == "__pycache__" for part in file.parts)
    return file.is_file() and not file.is_symlink() and not hidden


def _describe(code: Code, new: Path, scratch: Path, report: Callable[[str], None]) -> Description:
    """Run the plug-in in a sandboxed process; return its checked description."""
    name, trying = code.module, "starting"
    request = {
        "code": {
            "module": code.module,
            "attribute": code.attribute,
            "copied": code.copied,
            "version": code.version,
        },
        "folder": str(new),
    }
    end = time.monotonic() + SECONDS
    with SandboxProcess.start(
        _TARGET, limits=_LIMITS, scratch=scratch, read_only=(new,), max_message_bytes=_MAX_BYTES
    ) as process:
        try:
            process.channel.send(request, timeout=SECONDS)
            reply = process.channel.recv(timeout=SECONDS)
            while "trying" in reply:
                trying = excerpt(reply["trying"], 100)
                report(trying)
                reply = process.channel.recv(timeout=max(1.0, end - time.monotonic()))
        except ChannelClosed as error:
            exit_ = process.wait(20.0) or process.kill()
            raise process_error(name, f"{exit_.reason} (it was {trying})", exit_.stderr_tail) from error
        except FailedPrecondition:
            raise
        except Exception as error:
            exit_ = process.kill()
            raise process_error(name, f"{error} (it was {trying})", exit_.stderr_tail) from error
    described = Description.from_dict(sandboxed.result_of(reply, name))
    if code.copied and described.code != code:
        raise InvalidArgument(field="code", problem="changed by the plug-in", value=described.code, expected=str(code))
    return described


def _keep_kernels(compiled: Path, target: Path) -> None:
    """Move the compiled kernels. Only processes that run this plug-in's code load them.

    :raises InvalidArgument: for more than the engine has.
    """
    files = [path for path in sorted(compiled.glob("*.kernel")) if path.is_file() and not path.is_symlink()]
    size = sum(path.stat().st_size for path in files)
    if len(files) > _MAX_KERNELS or size > _MAX_KERNEL_BYTES:
        expected = f"at most {_MAX_KERNELS} kernels and {_MAX_KERNEL_BYTES} bytes"
        raise InvalidArgument(
            field="compiled", value=f"{len(files)} kernels, {size} bytes", expected=expected, reason=FAILED
        )
    target.mkdir()
    for path in files:
        shutil.copyfile(path, target / path.name, follow_symlinks=False)


def _write_cards(description: Description, target: Path) -> None:
    target.mkdir()
    family = RegisteredFamily(description)
    for task in description.tasks:
        card = build_card(ProgramTask(f"{description.name}/{task}", family, task, CORRECTED))
        (target / f"{task}.json").write_text(card_text(card), "utf-8")


def _replace(folder: Path, new: Path, old: Path) -> None:
    """Put a new folder in place of one that may exist."""
    if folder.exists():
        folder.rename(old)
    try:
        new.rename(folder)
    except OSError:
        if old.exists():
            old.rename(folder)
        raise


def languages() -> list[dict[str, Any]]:
    """Return the registered languages as JSON values; a damaged one has its problem."""
    rows: list[dict[str, Any]] = []
    for name in custom.language_names():
        try:
            description = read_description(name)
        except InvalidArgument as error:
            rows.append({"name": name, "problem": error.message})
            continue
        tasks = [f"{name}/{task}" for task in description.tasks]
        rows.append({"name": name, "tasks": tasks, "engine": description.engine, "note": description.note})
    return rows
