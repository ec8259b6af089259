"""What the commands of `dressage programs` read: programs, tasks, files of cases, and compiled kernels."""

from __future__ import annotations

import difflib
import gzip
import io
import os
import shutil
import sys
import zlib
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path

from dressage.errors import InvalidArgument, NotFound
from dressage.places import data_dir as folder_in_use
from dressage.programs.families import ProgramTask, families, program_task
from dressage.programs.syntax import Language, Program
from dressage.sdk.files import read_source

_BUNDLED = "program.txt"
_MAX_CASES = 512 * 2**20
_MAX_LINE = 16 * 2**20
_GZIP = b"\x1f"


def find_task(name: str, profile: str) -> ProgramTask:
    """Return a task by its environment id, or by the part after the slash.

    :raises NotFound: for an unknown task; the message has the closest names.
    :raises InvalidArgument: for an unknown profile.
    """
    names = [f"{family.name}/{task}" for family in families() for task in family.tasks]
    full = name if "/" in name else next((task for task in names if task.partition("/")[2] == name), name)
    if full not in names:
        short = {task.partition("/")[2].lower(): task for task in names}
        close = difflib.get_close_matches(name.partition("/")[2].lower() or name.lower(), short, n=3)
        listed = ", ".join(short[match] for match in close) or ", ".join(names)
        raise NotFound(f"--task: unknown task (got {name[:60]!r}); expected {listed}", reason="TASK_NOT_FOUND")
    return program_task(full, profile)


def read_program(source: str, language: Language) -> Program:
    """Return the program of a text, of a Python function, or of a file or bundle with one.

    :raises InvalidArgument: if the file cannot be read, or the text is no program of the language.
    """
    from dressage.programs.from_python import from_python
    from dressage.programs.syntax import parse

    text = _text_of(source)
    if text.lstrip().startswith("DEF"):
        return parse(text, language)
    if "def " in text:
        return from_python(text, language)
    raise InvalidArgument(
        field="PROGRAM",
        problem="neither a program nor a file",
        value=source,
        expected="DEF run m( … m), a Python function run(), or a file with one",
        remedy=f"The actions of {language.name} are {', '.join(language.actions)}.",
    )


def _text_of(source: str) -> str:
    try:
        path = Path(source).expanduser()
        if path.is_dir():
            path = path / _BUNDLED
        named = path.is_file() or (path.suffix in (".txt", ".py", ".dsl") and len(source.split()) == 1)
    except (OSError, ValueError, RuntimeError):  # longer than a path may be, or with a zero byte
        named = False
    return read_source(path, field="PROGRAM") if named else source


def read_cases(path: Path) -> Iterator[str]:
    """Yield the lines of a file of cases, decompressed if it is a gzip file. The file is read once: it may be a pipe.

    :param path: ``-`` for standard input.
    :raises InvalidArgument: if it cannot be read, is truncated, too large or no text.
    """
    size = 0
    try:
        with _open(path) as opened:
            compressed = opened.peek(1)[:1] == _GZIP  # a pipe may have one byte only; JSON does not begin with it
            with gzip.open(opened) if compressed else opened as file:
                while line := file.readline(_MAX_LINE + 1):
                    size += len(line)
                    if len(line) > _MAX_LINE or size > _MAX_CASES:
                        expected = f"lines of at most {_MAX_LINE} bytes, {_MAX_CASES} in all"
                        raise InvalidArgument(field="CASES", problem="too large", value=str(path), expected=expected)
                    yield line.decode("utf-8")
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise InvalidArgument(
            field="CASES",
            problem=f"damaged or truncated: {error}",
            value=str(path),
            expected="a complete gzip file",
            remedy="Copy it again.",
        ) from error
    except OSError as error:
        problem = f"cannot be read: {error.strerror or error}"
        raise InvalidArgument(field="CASES", problem=problem, value=str(path), expected="a readable file") from error
    except UnicodeDecodeError as error:
        raise InvalidArgument(
            field="CASES", problem="not UTF-8", value=str(path), expected="JSON lines in UTF-8, or a .gz of them"
        ) from error


def _open(path: Path) -> AbstractContextManager[io.BufferedReader]:
    if str(path) == "-":
        return nullcontext(open(sys.stdin.fileno(), "rb", closefd=False))
    return path.open("rb")


def use_kernels(data_dir: Path | None) -> None:
    """Keep compiled kernels in the data folder, and print each one that has to be compiled.

    Only a folder that no other user can write to is used, because kernels are code; else they are compiled in memory.
    """
    with _without_scipy():
        import numba.np.arraymath  # noqa: F401  # it looks for scipy, when the first kernel is loaded at the latest

        from dressage.episodes import compiling
    from dressage.episodes.versions import FOLDER_VARIABLE, facts

    if os.environ.get(FOLDER_VARIABLE):
        return
    root = folder_in_use(data_dir) / "kernels" / "command-line"
    folder = root / facts()[:32]
    try:
        if root.is_dir() and not folder.is_dir():
            shutil.rmtree(root, ignore_errors=True)  # of another version
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        status = folder.stat()
        usable = status.st_uid == os.getuid() and not status.st_mode & 0o022 and os.access(folder, os.W_OK)
    except OSError:
        usable = False
    if usable:
        compiling.write_to(folder, report_compiling)


@contextmanager
def _without_scipy() -> Iterator[None]:
    """Let numba be imported without scipy, which takes as long as all the rest; no kernel of programs multiplies matrices."""
    if "scipy" in sys.modules or "numba" in sys.modules:
        yield
        return
    sys.modules["scipy"] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        del sys.modules["scipy"]


def report_compiling(kernel: str) -> None:
    """Print that a kernel is being compiled, to standard error."""
    print(f"compiling {kernel}, once for this version; up to 10 s …", file=sys.stderr, flush=True)
