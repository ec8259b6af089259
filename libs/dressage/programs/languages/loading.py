"""Loads the code of a plug-in, in a sandboxed process.

A registered plug-in's module is a copy in the folder of its language, or an installed package. Its compiled kernels are read
from that folder too: code that a plug-in had compiled is never loaded by a process that does not run the plug-in anyway.
"""

from __future__ import annotations

import functools
import hashlib
import importlib
import importlib.util
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from dressage.envs import custom
from dressage.errors import FailedPrecondition, InvalidArgument
from dressage.programs.languages.description import Code, Description, description_of
from dressage.programs.languages.failures import FAILED, plugin_code
from dressage.programs.languages.live import LiveFamily, live_family
from dressage.programs.languages.plugin import Plugin
from dressage.programs.languages.store import read_description
from dressage.sandbox import lockdown

CODE, KERNELS = "code", "kernels"
"""Folders of a language: the copy of its code, and its compiled kernels."""


def load_plugin(code: Code, folder: Path) -> Plugin:
    """Import a plug-in.

    :param folder: folder of the language; a copied module is in its ``code``.
    :raises FailedPrecondition: outside of a sandboxed process.
    :raises InvalidArgument: for a module that cannot be imported, or without a plug-in.
    """
    if not lockdown.is_locked_down():
        raise FailedPrecondition(
            f"the language's code {code.module} is not loaded in this process; only sandboxed processes load it",
            reason="NOT_SANDBOXED",
        )
    if code.copied:
        sys.path.append(str(folder / CODE))
    with plugin_code(f"import of {code.module}"):
        module = importlib.import_module(code.module)
    plugin = getattr(module, code.attribute, None)
    if not isinstance(plugin, Plugin):
        expected = f"a Plugin named {code.attribute} in {code.module}"
        raise InvalidArgument(field=f"{code.module}.{code.attribute}", value=plugin, expected=expected, reason=FAILED)
    return plugin


def digest_of(root: Path) -> str:
    """Return the digest of the source files in a folder, or of one file: their names and contents."""
    files = sorted(root.rglob("*.py")) if root.is_dir() else [root]
    digest = hashlib.sha256()
    for path in files:
        data = path.read_bytes()
        name = path.relative_to(root).as_posix() if root.is_dir() else path.name
        digest.update(f"{name} {len(data)} ".encode() + data)
    return digest.hexdigest()


def installed_digest(module: str) -> str:
    """Return the digest of an installed module's sources, those of its whole package included. In a sandboxed process."""
    top = module.partition(".")[0]
    with plugin_code(f"import of {module}"):
        spec = importlib.util.find_spec(top)
    if spec is None:
        expected = "the path of a module, the name of an entry point of dressage.programs, or an installed module"
        raise InvalidArgument(field="plug-in", problem="not found", value=module, expected=expected)
    places = list(spec.submodule_search_locations or ())
    return digest_of(Path(places[0] if places else str(spec.origin)))


@functools.cache
def load_registered(name: str) -> tuple[Plugin, Description]:
    """Return the plug-in of a registered language and its description.

    :raises FailedPrecondition: outside of a sandboxed process, or if the code is not what was registered.
    :raises InvalidArgument: for a plug-in that does not work.
    """
    folder = custom.language_folder(name)
    description = read_description(name)
    plugin = load_plugin(description.code, folder)
    version = digest_of(folder / CODE) if description.code.copied else installed_digest(description.code.module)
    present = description_of(plugin, replace(description.code, version=version))
    if present.to_dict() != description.to_dict():
        raise FailedPrecondition(
            f"the installed plug-in of the language {name} is not the registered one. Register it again where trainers run: "
            f"dressage programs register {description.code.module}",
            reason="LANGUAGE_CHANGED",
        )
    return plugin, description


@functools.cache
def load_family(name: str) -> LiveFamily:
    """Return the family of a registered language, with its code; see `load_registered`."""
    from dressage.episodes import compiling

    plugin, description = load_registered(name)
    kernels = custom.language_folder(name) / KERNELS
    compiling.read_from(kernels if kernels.is_dir() else None)
    return live_family(plugin, description)


def read_replies(plugin: Plugin, replies: Sequence[str]) -> list[list[str]]:
    """Return the texts of programs that the plug-in reads in each reply.

    :raises InvalidArgument: for a function that raises, or returns anything but texts.
    """
    assert plugin.read_reply is not None
    programs = []
    for reply in replies:
        with plugin_code("read_reply"):
            texts = list(plugin.read_reply(reply))
        if not all(isinstance(text, str) for text in texts):
            raise InvalidArgument(field="read_reply", value=texts, expected="texts of programs", reason=FAILED)
        programs.append(texts)
    return programs
