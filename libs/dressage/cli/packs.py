"""`dressage envs install` and `sync`."""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from dataclasses import asdict
from pathlib import Path

from dressage.cli import output
from dressage.envs.packs import installing, process, registry
from dressage.envs.packs.batched import newton_model, tasks
from dressage.errors import DressageError, FailedPrecondition, InvalidArgument, Unavailable
from dressage.pack_process import last_line, pack_process
from dressage.sandbox.pipe import MALFORMED, ChannelClosed

_SECONDS = 1800.0
_PACKS = ("isaaclab",)
_COMPILER = "dressage.envs.packs.batched.stepping:compile_kernels"
_MODELER = "dressage.envs.packs.batched.newton_model:write_model"


def install(name: str, *, reinstall: bool) -> None:
    """Install a pack, compile its kernels and write its models, and print each stage.

    :raises NotFound: for an unknown pack.
    :raises Unavailable: if its packages cannot be fetched.
    :raises FailedPrecondition: if its version of Python is not there.
    """
    pack = registry.pack(name)
    with output.writing(
        "folder of environment packs",
        str(registry.folder_of(name).parent),
        expected="a folder that can be written to; set --data-dir or DRESSAGE_PACKS",
    ):
        folder = installing.install(pack, again=reinstall, say=print)
        if pack.batched and not (folder / process.KERNELS).exists():
            _compile(pack, folder / process.KERNELS)
        for environment, path in pack.written_models.items():
            if not (folder / path).exists():
                _write_model(pack, environment, folder / path)
    print(f"environments: {', '.join(pack.environments)}")


def _write_model(pack: registry.Pack, environment: str, target: Path) -> None:
    """Have the simulator write its MuJoCo model of an environment, from which videos are drawn."""
    print(f"{environment}: writing its MuJoCo model, from which videos are drawn")
    with pack_process(pack.name, _MODELER) as running:
        try:
            running.channel.send({"environment": environment})
            running.channel.recv(timeout=_SECONDS)
            target.parent.mkdir(exist_ok=True)
            with tempfile.TemporaryDirectory(prefix=f".{target.stem}-", dir=target.parent) as temporary:
                copy = shutil.copyfile(running.scratch / newton_model.MODEL_FILE, Path(temporary) / target.name)
                copy.rename(target)
        except DressageError as error:
            cause = last_line(running, error)
            print(f"{environment}: no model was written, so the simulator's camera draws its videos, slowly: {cause}")


def _compile(pack: registry.Pack, target: Path) -> None:
    """Compile the kernels of a pack's environments into its folder. Trainings compile what cannot be compiled now."""
    print("compiling kernels for this machine, for minutes")
    with tempfile.TemporaryDirectory(prefix=f".{process.KERNELS}-", dir=target.parent) as temporary:
        new = Path(temporary) / "new"
        for environment in pack.environments:
            with pack_process(pack.name, _COMPILER, with_gpu=True) as running:
                try:
                    running.channel.send({"environment": environment})
                    running.channel.recv(timeout=_SECONDS)
                    shutil.copytree(running.scratch / process.KERNELS, new, dirs_exist_ok=True)
                except DressageError as error:
                    print(
                        f"{environment}: no kernels were compiled, so trainings compile them: {last_line(running, error)}"
                    )
        if new.exists():
            new.rename(target)


def sync(name: str, *, write: Path | None, as_json: bool) -> None:
    """Print the differences between the tasks of an installed pack and the registry.

    :raises InvalidArgument: for a pack without a registry.
    :raises FailedPrecondition: if it is not installed or does not work.
    """
    if name not in _PACKS:
        raise InvalidArgument(
            field="pack", value=name, expected=f"a pack with a registry of tasks: {', '.join(_PACKS)}"
        )
    live, version = _live(name)
    lines = tasks.differences(live, tasks.registry())
    if write is not None:
        with output.writing("registry", str(write), expected="a file that can be written"):
            tasks.write(write, live, version)
    if as_json:
        output.print_json({"version": version, "tasks": [asdict(task) for task in live], "differences": lines})
        return
    counts = Counter(task.backend for task in live)
    print(f"{name} {version}: {len(live)} tasks")
    for backend, needs in tasks.NEEDS.items():
        print(f"{backend}: {counts[backend]} tasks. {needs}")
    print("\n".join(lines) if lines else "the registry is current")


def _live(name: str) -> tuple[list[tasks.Task], str]:
    with pack_process(name, "dressage.envs.packs.batched.listing:list_tasks") as running:
        try:
            reply = running.channel.recv(timeout=_SECONDS)
            return [tasks.Task(**entry) for entry in reply["tasks"]], str(reply["version"])
        except ChannelClosed as error:
            tail = (running.kill().stderr_tail.strip().splitlines() or ["it ended"])[-1]
            raise FailedPrecondition(f"the packages of {name} do not work: {tail}", reason="PACK_DAMAGED") from error
        except MALFORMED as error:
            raise Unavailable(f"the process of {name} sent a malformed reply", reason="PACK_DAMAGED") from error
