"""Resource limits of a sandboxed process."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields

from dressage.errors import InvalidArgument
from dressage.sandbox.heartbeat import CEILING_SECONDS

KIB = 1024
MIB = 1024 * KIB
GIB = 1024 * MIB
STARVED_FACTOR = 4.0
"""``starved_seconds`` as a multiple of ``wall_seconds`` for calls of generated code."""
_OPTIONAL = ("cpu_seconds", "wall_seconds", "starved_seconds", "address_space_bytes", "call_seconds")


@dataclass(frozen=True)
class Limits:
    """Upper limits for one sandboxed process; exceeding one ends the process (see `Exit.kind`)."""

    memory_bytes: int = 2 * GIB
    """Memory: resident, swapped out, huge pages and page tables. The parent polls it; the kernel also refuses private mappings
    well above it."""
    cpu_seconds: int | None = None
    """Processor time over all threads, whole seconds; None: unlimited."""
    wall_seconds: float | None = None
    """Time since the start of the process or the assignment of its target, on the parent's monotonic clock; None: unlimited."""
    starved_seconds: float | None = None
    """Wall-clock limit where the process waits for a processor: such waits then do not count towards ``wall_seconds``, and a
    process that reaches this limit is not to blame (`Exit.kind` "starved"). None: ``wall_seconds`` counts all time."""
    file_bytes: int = 1 * GIB
    """Size of any file that it writes."""
    open_files: int = 256
    """Open file descriptors."""
    processes: int = 256
    """Threads; further processes are never allowed."""
    scratch_bytes: int = 4 * GIB
    """Total size of its files in bytes: of its scratch folder, and of removed files that it still uses (polled about once a
    second)."""
    address_space_bytes: int | None = None
    """RLIMIT_AS; None for programs that reserve far more than they use (JAX)."""
    call_seconds: float | None = None
    """Processor time of one call of generated code, for targets that use `dressage.sandbox.heartbeat`. A call may take less
    if earlier calls were short, see `heartbeat.seconds_allowed`. None: unlimited."""

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if value is None and field.name in _OPTIONAL:
                continue
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not value > 0:
                raise InvalidArgument(field=f"limits.{field.name}", value=value, expected="a positive number")

    def to_dict(self) -> dict[str, int | float | None]:
        """Return the limits as JSON values."""
        return asdict(self)


def simulator_limits(gigabytes: int) -> Limits:
    """Return the limits of a process of an environment pack, which may write compiled kernels into its own folder."""
    return Limits(memory_bytes=gigabytes * GIB, file_bytes=GIB, open_files=1024)


LEARNER_LIMITS = Limits(memory_bytes=8 * GIB, file_bytes=2 * GIB, scratch_bytes=8 * GIB, call_seconds=CEILING_SECONDS)
"""Limits of a learner; `Machine.fit` lowers them. The folder has room for three of the largest checkpoints: the two that are
kept and the one that is being written."""
