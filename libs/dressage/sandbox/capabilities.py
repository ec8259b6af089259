"""Detects the sandbox features of this kernel, for `dressage doctor` and before generated code runs."""

from __future__ import annotations

import platform
from dataclasses import asdict, dataclass

from dressage.sandbox import landlock, seccomp

REMEDY = (
    "Use Linux 5.13 or newer with Landlock enabled (CONFIG_SECURITY_LANDLOCK, and `landlock` in the kernel's lsm= list) on "
    "x86_64 or aarch64, or the container image on such a host; or allow unsandboxed code explicitly, "
    "for code that you have read yourself."
)


@dataclass(frozen=True)
class Capabilities:
    """Detected features. ``sufficient``: untrusted code may run here."""

    system: str
    machine: str
    landlock_abi: int
    """0: none; 1 and up: files; 4: TCP as well; 6: signals and abstract sockets as well."""
    seccomp: bool

    @property
    def sufficient(self) -> bool:
        """Whether both Landlock and seccomp are available."""
        return self.landlock_abi >= 1 and self.seccomp

    @property
    def missing(self) -> tuple[str, ...]:
        """Names of the missing features."""
        names = [] if self.landlock_abi >= 1 else ["Landlock"]
        return tuple(names + ([] if self.seccomp else ["seccomp"]))

    @property
    def remedy(self) -> str:
        """How to get the missing features; empty if none is missing."""
        return REMEDY if self.missing else ""

    def to_dict(self) -> dict[str, object]:
        """Return the features as JSON values."""
        return {
            **asdict(self),
            "sufficient": self.sufficient,
            "missing": list(self.missing),
            "remedy": self.remedy,
        }


def capabilities() -> Capabilities:
    """Query the running kernel; takes microseconds and changes nothing."""
    return Capabilities(platform.system(), platform.machine(), landlock.abi(), seccomp.available())
