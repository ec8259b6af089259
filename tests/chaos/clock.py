"""A clock of processes that a test sets while they run, by libfaketime.

Only the time of day changes. Monotonic clocks do not, as on a machine whose time is corrected. Trainers keep the machine's
clock, because the local launcher does not pass on `LD_PRELOAD`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

_ROOT = Path(__file__).parents[2]
_SLEEP = Path(__file__).with_name("sleep.c")
_NAME = "libfaketimeMT.so.1"


@dataclass(frozen=True)
class Clock:
    """The clock of all services of an installation.

    :param libraries: the preloaded libraries.
    :param file: holds the offset.
    """

    libraries: tuple[Path, ...]
    file: Path

    @classmethod
    def find(cls, folder: Path) -> Clock | None:
        """Return a clock with its file in a folder; None where libfaketime or a C compiler is not installed."""
        compiler = shutil.which("cc")
        for root in (_ROOT / ".tools/faketime", Path("/")):
            for library in root.glob(f"usr/lib/*/faketime/{_NAME}") if compiler else ():
                sleep = folder / "sleep.so"
                subprocess.run([str(compiler), "-shared", "-fPIC", "-O1", str(_SLEEP), "-o", str(sleep)], check=True)
                clock = cls((sleep, library), folder / "clock")
                clock.jump(0)
                return clock
        return None

    def environment(self) -> dict[str, str]:
        """Return the variables with which a process uses this clock."""
        return {
            "LD_PRELOAD": ":".join(map(str, self.libraries)),
            "FAKETIME_TIMESTAMP_FILE": str(self.file),
            "FAKETIME_CACHE_DURATION": "1",
            "DONT_FAKE_MONOTONIC": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        }

    def jump(self, seconds: float) -> None:
        """Set the clock so many seconds ahead of the machine's, or behind it."""
        draft = self.file.with_suffix(".draft")
        draft.write_text(f"{seconds:+g}\n")
        os.replace(draft, self.file)
