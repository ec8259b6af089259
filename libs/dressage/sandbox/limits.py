"""What a sandboxed process may use."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields

from dressage.errors import InvalidArgument

KIB = 1024
MIB = 1024 * KIB
GIB = 1024 * MIB


@dataclass(frozen=True)
class Limits:
    """Upper bounds for one sandboxed process; passing one ends the process (see `Exit.kind`)."""

    memory_bytes: int = 2 * GIB
    """Resident memory. The parent polls it; the kernel also refuses private mappings well above it."""
    cpu_seconds: int | None = None
    """Processor time over all threads, whole seconds; None: unbounded."""
    wall_seconds: float | None = None
    """Time from the start of the process, or from when it got its target, by the parent's monotonic clock; None: unbounded."""
    file_bytes: int = 1 * GIB
    """Size of any one file that it writes."""
    open_files: int = 256
    """Open file descriptors."""
    processes: int = 256
    """Threads; further processes are never allowed."""
    scratch_bytes: int = 4 * GIB
    """Bytes that its scratch folder may hold in all (polled about once a second)."""
    address_space_bytes: int | None = None
    """RLIMIT_AS; None for programs that reserve far more than they touch (JAX)."""

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if value is None and field.name in ("cpu_seconds", "wall_seconds", "address_space_bytes"):
                continue
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not value > 0:
                raise InvalidArgument(field=f"limits.{field.name}", value=value, expected="a positive number")

    def to_dict(self) -> dict[str, int | float | None]:
        """Return the limits as JSON values."""
        return asdict(self)
