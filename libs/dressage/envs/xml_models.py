"""Models in MuJoCo's XML, for clients that draw recorded states with a MuJoCo of their own, as the console's page does.

A compiled model can be read only by the MuJoCo that compiled it. XML can be read by others, if they are not too old for
the elements that it uses. The package contains the XML of the stock environments, so that services without a simulator have
it: the files of the Gymnasium distribution, unchanged. `dressage envs add` keeps the XML of a custom model in a zip archive,
with the files that it includes: the main file first, all paths relative.
"""

from __future__ import annotations

import os
import tempfile
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from dressage.envs import custom
from dressage.envs.cards import load_card
from dressage.envs.catalogue import catalogue
from dressage.envs.loading import quiet_loading
from dressage.errors import FailedPrecondition, InvalidArgument

MAX_BYTES = 12 << 20
"""Bytes of a model's files, together. One message of the API holds them."""
_MAX_FILES = 2_000
_NO_MODEL = "NO_XML_MODEL"
_EPOCH = (1980, 1, 1, 0, 0, 0)


@dataclass(frozen=True)
class XmlModel:
    """A model as MuJoCo loads it from files.

    :param path: relative path of the main file.
    :param xml: its text.
    :param files: included files, meshes and textures by relative path.
    """

    path: str
    xml: str
    files: Mapping[str, bytes]


def xml_model(env_id: str) -> XmlModel:
    """Return the model of an environment.

    :raises NotFound: for an unknown environment.
    :raises FailedPrecondition: ``NO_XML_MODEL`` if there is none, and why.
    :raises InvalidArgument: for a damaged archive.
    """
    card = load_card(env_id)
    entry = catalogue().get(env_id)
    if entry is not None and entry.simulated:
        return XmlModel(entry.model, entry.model_file.read_text("utf-8"), {})
    if card.pack and card.has_video:
        message = f"environment: the model of {env_id} is in the environment pack {card.pack}, where the renderer runs"
        raise FailedPrecondition(message, reason=_NO_MODEL)
    if not env_id.startswith(custom.MODEL):
        raise _no_model(env_id, "the environment records no states of a MuJoCo model")
    archive = custom.folder_of(env_id) / custom.XML_FILE
    if not archive.is_file():
        why = "the XML of this model was not kept; add it again with `dressage envs add`, which prints why it cannot"
        raise _no_model(env_id, why)
    return _read(archive)


def keep_xml(source: Path, archive: Path) -> str:
    """Write a model and everything that it includes into an archive, if another computer can load it from there.

    :param source: the main XML file, which MuJoCo compiles.
    :returns: why it was not written; empty if it was.
    """
    import mujoco

    with quiet_loading():
        included = [Path(path).resolve() for path in mujoco.mju_getXMLDependencies(str(source.resolve()))]
    paths = sorted({source.resolve(), *included})
    total = sum(path.stat().st_size for path in paths)
    if total > MAX_BYTES or len(paths) > _MAX_FILES:
        return (
            f"its {len(paths)} files have {total / 1e6:.0f} MB; at most {_MAX_FILES} files and {MAX_BYTES / 1e6:.0f} MB"
        )
    root = Path(os.path.commonpath([path.parent for path in paths]))
    main = source.resolve().relative_to(root).as_posix()
    contents = {path.relative_to(root).as_posix(): path.read_bytes() for path in paths}
    if not _same_elsewhere(source, main, contents):
        return "its files are named by absolute paths, or lie where a copy does not find them"
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as file:
        for name in [main, *(name for name in contents if name != main)]:
            info = zipfile.ZipInfo(name, _EPOCH)
            info.compress_type = zipfile.ZIP_DEFLATED
            file.writestr(info, contents[name])
    return ""


def _same_elsewhere(source: Path, main: str, contents: Mapping[str, bytes]) -> bool:
    """Whether a copy in another folder uses only its own files and compiles to a model of the same shape."""
    import mujoco

    with tempfile.TemporaryDirectory(prefix="dressage-model-") as name:
        folder = Path(name).resolve()
        for path, data in contents.items():
            target = folder / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(data)
        try:
            with quiet_loading():
                used = [Path(path).resolve() for path in mujoco.mju_getXMLDependencies(str(folder / main))]
                copy = mujoco.MjModel.from_xml_path(str(folder / main))
                original = mujoco.MjModel.from_xml_path(str(source))
        except (ValueError, OSError):
            return False
    return all(path.is_relative_to(folder) for path in used) and _shape(copy) == _shape(original)


def _shape(model: Any) -> Sequence[int]:
    return [int(getattr(model, name)) for name in ("nq", "nv", "nu", "nbody", "ngeom", "nmeshvert", "nmeshface")]


def _read(archive: Path) -> XmlModel:
    try:
        with zipfile.ZipFile(archive) as file:
            entries = file.infolist()
            if not entries or len(entries) > _MAX_FILES or sum(entry.file_size for entry in entries) > MAX_BYTES:
                raise ValueError("too large")
            if any(_leaves(entry.filename) for entry in entries):
                raise ValueError("a path leads out of it")
            main, *rest = entries
            return XmlModel(
                main.filename, file.read(main).decode("utf-8"), {entry.filename: file.read(entry) for entry in rest}
            )
    except (OSError, ValueError, NotImplementedError, zipfile.BadZipFile) as error:
        raise InvalidArgument(
            f"the model archive {archive.parent.name!r} cannot be read: {error}",
            field="environment",
            expected="an archive that `dressage envs add` wrote; add the environment again",
        ) from error


def _leaves(name: str) -> bool:
    path = PurePosixPath(name)
    return path.is_absolute() or ".." in path.parts or not path.parts


def _no_model(env_id: str, why: str) -> FailedPrecondition:
    return FailedPrecondition(f"environment: {env_id} cannot be shown in 3D: {why}", reason=_NO_MODEL)
