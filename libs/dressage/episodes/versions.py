"""What the machine code of kernels depends on, but for signature and processor. It imports no compiler."""

from __future__ import annotations

import functools
import hashlib
import platform
import sys
from importlib import metadata
from pathlib import Path

FOLDER_VARIABLE = "DRESSAGE_KERNELS"
"""Environment variable that names the folder of compiled kernels."""
_PACKAGES = ("numba", "llvmlite", "numpy")


def sources() -> list[Path]:
    """Return the modules of this package, those of the other packages that it compiles, and those with their constants."""
    library = Path(__file__).parents[1]
    rules = (library / "envs" / "catalogue").glob("*/rules.py")
    programs = (library / "programs" / part for part in ("engine", "karel", "latent", "minigrid", "search"))
    roots = (Path(__file__).parent, *(path.parent for path in rules), *programs)
    return sorted({library / "envs" / "rules.py", *(path for root in roots for path in root.rglob("*.py"))})


@functools.cache
def facts() -> str:
    """Return a digest of `sources` and versions."""
    text = b"".join(path.read_bytes() for path in sources())
    versions = [f"{name} {metadata.version(name)}" for name in _PACKAGES]
    values = (hashlib.sha256(text).hexdigest(), *versions, platform.python_version(), sys.platform)
    return hashlib.sha256(repr(values).encode()).hexdigest()
