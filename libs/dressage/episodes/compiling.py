"""Compiles kernels with numba, and keeps their machine code in a folder that a sandboxed process can only read.

numba's own cache needs write permission to read, and so cannot be used behind a sandbox. Here a trusted process calls
`write_to` and compiles; any other process reads the folder that ``DRESSAGE_KERNELS`` names, never writes, and compiles in
memory what it does not find there. A file's name covers everything that its machine code depends on: sources of this
package, signature, processor, versions. Files are pickles: only a trusted process may write to the folder.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import pickle
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from numba import njit
from numba.core.caching import NullCache
from numba.core.compiler import CompileResult
from numba.core.serialize import dumps

from dressage.episodes.versions import FOLDER_VARIABLE, facts

_NOTICE_SECONDS = 1.0
# Not public: numba has no way to read a kernel from a folder that it cannot write to (decision 0039).
_rebuild: Any = CompileResult._rebuild
_dumps: Any = dumps


class _Place:
    """Where kernels are read from, and whether this process may add to them."""

    folder: Path | None = Path(os.environ[FOLDER_VARIABLE]) if os.environ.get(FOLDER_VARIABLE) else None
    writable = False
    warned = False
    progress: Callable[[str], None] | None = None


def device(function: Callable[..., Any]) -> Any:
    """Compile a function that kernels call. Its arithmetic is that of the source: no reassociation, no contraction."""
    # No fast-math and no parallel loops: a score must be stock Gymnasium's to the bit (decision 0039).
    return njit(nogil=True, error_model="numpy")(function)


def allocation_free(*, inline: bool = False) -> Callable[[Callable[..., Any]], Any]:
    """Compile a function as `device` does, without counting references to arrays. It must not allocate.

    Counting costs atomic operations at each call; a kernel's arguments live as long as it runs anyway.

    :param inline: always insert its machine code where it is called.
    """
    options: Any = {"_nrt": False, "forceinline": inline}
    decorator: Callable[[Callable[..., Any]], Any] = njit(nogil=True, error_model="numpy", **options)
    return decorator


def kernel(name: str) -> Callable[[Callable[..., Any]], Any]:
    """Compile a function that Python calls, and keep its machine code under this name.

    It holds no lock of the interpreter while it runs, and starts no thread.
    """

    def compile_kernel(function: Callable[..., Any]) -> Any:
        dispatcher: Any = njit(nogil=True, error_model="numpy")(function)
        dispatcher._cache = _KernelCache(name)
        return dispatcher

    return compile_kernel


def read_from(folder: Path | None) -> None:
    """Read kernels from this folder; None: compile all in memory."""
    _Place.folder, _Place.writable, _Place.progress = folder, False, None


def write_to(folder: Path, progress: Callable[[str], None] | None = None) -> None:
    """Read kernels from this folder and add to it those that are compiled from now on. For trusted processes only.

    :param progress: called with the name of each kernel that is about to be compiled.
    """
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    _Place.folder, _Place.writable, _Place.progress = folder, True, progress


class _KernelCache(NullCache):  # type: ignore[misc]
    """The cache of one kernel, as numba's dispatcher uses it."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._began = 0.0

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        target_context.refresh()
        self._began = time.monotonic()
        path = self._path(sig, target_context.codegen())
        if path is None:
            return None
        try:
            return _rebuild(target_context, *pickle.loads(path.read_bytes()))
        except FileNotFoundError:
            if _Place.progress is not None:
                _Place.progress(self._name)
            return None
        except Exception as error:  # a damaged file costs time only
            print(f"the compiled kernel {path.name} cannot be read: {error!r}", file=sys.stderr)
            return None

    def save_overload(self, sig: Any, cres: Any) -> None:
        path = self._path(sig, cres.codegen)
        if path is None or not _Place.writable:
            self._notice()
            return
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".tmp-")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(_dumps(cres._reduce()))
            os.replace(temporary, path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
            raise

    def _path(self, sig: Any, codegen: Any) -> Path | None:
        if _Place.folder is None:
            return None
        key = repr((facts(), str(sig), codegen.magic_tuple()))
        return _Place.folder / f"{self._name}-{hashlib.sha256(key.encode()).hexdigest()[:32]}.kernel"

    def _notice(self) -> None:
        """Log once that compilation took time because no compiled kernel was found."""
        seconds = time.monotonic() - self._began
        if seconds > _NOTICE_SECONDS and not _Place.warned:
            _Place.warned = True
            cause = f"not in {_Place.folder}" if _Place.folder else f"{FOLDER_VARIABLE} is not set"
            print(f"warning: kernel {self._name} was compiled in memory in {seconds:.1f} s ({cause})", file=sys.stderr)
