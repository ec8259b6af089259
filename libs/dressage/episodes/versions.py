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


@functools.cache
def facts() -> str:
    """Return a digest of this package's sources, those of the other packages that it compiles, and versions."""
    library = Path(__file__).parents[1]
    programs = (library / "programs" / part for part in ("engine", "karel", "latent", "minigrid", "search"))
    roots = (Path(__file__).parent, *programs)
    files = [*(library / "envs").rglob("rules.py"), *(path for root in roots for path in root.rglob("*.py"))]
    sources = b"".join(path.read_bytes() for path in sorted(files))
    versions = [f"{name} {metadata.version(name)}" for name in _PACKAGES]
    values = (hashlib.sha256(sources).hexdigest(), *versions, platform.python_version(), sys.platform)
    return hashlib.sha256(repr(values).encode()).hexdigest()
