"""A seccomp filter, assembled by hand as classic BPF.

The filter is a deny-list over the calls reviewed in `dressage.sandbox.syscalls`: JAX, MuJoCo, BLAS and the allocator use
a large and changing set of harmless calls, so an allow-list would break with each of their releases, while the calls that
reach beyond the process are few and stable. Calls newer than the review fail with ENOSYS, so the list stays complete
on newer kernels. Calls that are many calls in one, such as fcntl, ioctl, prctl and madvise, have a list of allowed commands
instead (`dressage.sandbox.commands`): kernels add commands, and libraries use few of them. Refusals are errors, not kills: a
library that probes for a call falls back, and a hostile program gets an exception that its report can quote.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
from collections.abc import Collection
from dataclasses import dataclass

from dressage.sandbox import commands
from dressage.sandbox.syscalls import MACHINES, Machine

_PR_SET_NO_NEW_PRIVS = 38
_SECCOMP_SET_MODE_FILTER = 1
_SECCOMP_GET_ACTION_AVAIL = 2
_SECCOMP_FILTER_FLAG_TSYNC = 1
_SECCOMP_NUMBER = {"x86_64": 317, "aarch64": 277}

_RET_KILL_PROCESS = 0x80000000
_RET_ERRNO = 0x00050000
_RET_ALLOW = 0x7FFF0000

# Classic BPF opcodes (linux/bpf_common.h): load a word, jumps against a constant, return.
_LD_W_ABS = 0x20
_ALU_AND = 0x54
_JEQ = 0x15
_JGT = 0x25
_RET = 0x06

# Offsets in struct seccomp_data; arguments are 64 bit, both machines are little-endian.
_OFF_NR, _OFF_ARCH, _OFF_ARGS = 0, 4, 16

# CLONE_VM, FS, FILES, SIGHAND, THREAD and SYSVSEM. A thread with descriptors of its own would hide files from the parent.
_CLONE_AS_A_THREAD = 0x00000100 | 0x00000200 | 0x00000400 | 0x00000800 | 0x00010000 | 0x00040000
_CLONE_NEW = 0x7E020080  # every CLONE_NEW… namespace flag
_MAP_SHARED, _MAP_ANONYMOUS, _MAP_HUGETLB = 0x01, 0x20, 0x40000

DENIED: tuple[str, ...] = (
    # Network and local sockets of every kind.
    "socket", "socketpair", "bind", "connect", "listen", "accept", "accept4", "sendto", "recvfrom", "sendmsg",
    "recvmsg", "sendmmsg", "recvmmsg", "shutdown", "getsockname", "getpeername", "setsockopt", "getsockopt",
    # Other processes: making them, looking into them, signalling them, leaving the group that is killed whole.
    "fork", "vfork", "execve", "execveat", "setsid", "setpgid", "ptrace", "process_vm_readv", "process_vm_writev",
    "process_madvise", "process_mrelease", "kcmp", "pidfd_open", "pidfd_getfd", "pidfd_send_signal", "tkill",
    "rt_sigqueueinfo", "rt_tgsigqueueinfo", "migrate_pages", "move_pages",
    # What all processes of a user share: numbers of watches, the disks' queues.
    "inotify_init", "inotify_init1", "inotify_add_watch", "inotify_rm_watch", "sync", "syncfs",
    # Its own share of the machine: set before the filter, fixed afterwards.
    "setpriority", "ioprio_set", "sched_setaffinity", "sched_setscheduler", "sched_setparam", "sched_setattr",
    "setrlimit",
    # Namespaces and mounts.
    "unshare", "setns", "mount", "umount2", "pivot_root", "chroot", "fsopen", "fsconfig", "fsmount", "fspick",
    "move_mount", "open_tree", "mount_setattr",
    # Kernel surfaces that no numerical program needs.
    "keyctl", "add_key", "request_key", "bpf", "perf_event_open", "kexec_load", "kexec_file_load", "init_module",
    "finit_module", "delete_module", "userfaultfd", "personality", "open_by_handle_at", "name_to_handle_at",
    "quotactl", "quotactl_fd", "swapon", "swapoff", "reboot", "sethostname", "setdomainname", "acct", "syslog",
    "settimeofday", "clock_settime", "adjtimex", "clock_adjtime", "ioperm", "iopl", "modify_ldt", "vhangup",
    "nfsservctl", "lookup_dcookie", "fanotify_init", "fanotify_mark", "uselib", "_sysctl", "sysfs",
    # Memory that outlives the process or is not counted as resident, so that the memory limit cannot be dodged.
    "shmget", "shmat", "shmctl", "shmdt", "msgget", "msgsnd", "msgrcv", "msgctl", "semget", "semop", "semctl",
    "semtimedop", "mq_open", "mq_unlink", "mq_timedsend", "mq_timedreceive", "mq_notify", "mq_getsetattr",
    "memfd_create", "io_setup", "io_submit", "io_destroy", "io_getevents", "io_cancel",
    # The same: pages that a pipe holds, and rules and filters of the kernel.
    "splice", "tee", "vmsplice", "sendfile", "seccomp", "landlock_create_ruleset", "landlock_add_rule",
    "landlock_restrict_self",
    # File metadata, which Landlock does not cover: the owner's files elsewhere could be changed by path.
    "mknod", "mknodat", "chmod", "fchmod", "fchmodat", "chown", "fchown", "lchown", "fchownat", "setxattr",
    "lsetxattr", "fsetxattr", "removexattr", "lremovexattr", "fremovexattr", "utime", "utimes", "utimensat",
    "futimesat", "truncate",
)  # fmt: skip
# Answered as if the kernel were older: glibc then makes threads by clone(), whose flags a filter can read, and libraries
# lock by a file's name. A lock would stop neighbours that read the same file.
ABSENT: tuple[str, ...] = ("clone3", "io_uring_setup", "io_uring_enter", "io_uring_register", "memfd_secret", "flock")


@dataclass(frozen=True)
class Instruction:
    """One ``struct sock_filter``."""

    code: int
    true: int
    false: int
    value: int

    def pack(self) -> bytes:
        """Return the eight bytes the kernel reads."""
        return struct.pack("<HBBI", self.code, self.true, self.false, self.value)


def _return(value: int) -> Instruction:
    return Instruction(_RET, 0, 0, value)


def _refuse(number: int) -> Instruction:
    return _return(_RET_ERRNO | number)


def _load_argument(index: int, *, high: bool = False) -> Instruction:
    return Instruction(_LD_W_ABS, 0, 0, _OFF_ARGS + 8 * index + (4 if high else 0))


def _when(number: int, body: list[Instruction]) -> list[Instruction]:
    """Run ``body``, which must return on every path, if the call is ``number``."""
    return [Instruction(_JEQ, 0, len(body), number), *body]


def _one_of(index: int, values: Collection[int], refusal: int = errno.EPERM) -> list[Instruction]:
    """Allow the call if the low word of its argument is among ``values``, else answer ``refusal``."""
    tests = [Instruction(_JEQ, len(values) - i, 0, value) for i, value in enumerate(values)]
    return [_load_argument(index), *tests, _refuse(refusal), _return(_RET_ALLOW)]


def _clone_rule() -> list[Instruction]:
    # The thread flags all set and no namespace flag set: exactly a thread of this process.
    return [
        _load_argument(0),
        Instruction(_ALU_AND, 0, 0, _CLONE_AS_A_THREAD | _CLONE_NEW),
        Instruction(_JEQ, 0, 1, _CLONE_AS_A_THREAD),
        _return(_RET_ALLOW),
        _refuse(errno.EPERM),
    ]


def _mmap_rule(*, gpu: bool) -> list[Instruction]:
    """Refuse memory that is not counted as resident: huge pages, and shared pages without a file, which stay when unmapped.

    CUDA pins shared pages, so a process with a GPU may have them.
    """
    shared = [
        _load_argument(3),
        Instruction(_ALU_AND, 0, 0, _MAP_SHARED | _MAP_ANONYMOUS),
        Instruction(_JEQ, 0, 1, _MAP_SHARED | _MAP_ANONYMOUS),
        _refuse(errno.EPERM),
    ]
    return [
        _load_argument(3),
        Instruction(_ALU_AND, 0, 0, _MAP_HUGETLB),
        Instruction(_JEQ, 1, 0, 0),
        _refuse(errno.ENOMEM),
        *([] if gpu else shared),
        _return(_RET_ALLOW),
    ]


def _ioctl_rule(*, gpu: bool) -> list[Instruction]:
    if not gpu:
        return _one_of(1, commands.IOCTL.values(), errno.ENOTTY)
    allowed = (*commands.IOCTL.values(), *commands.GPU_IOCTL.values())
    tests = [Instruction(_JEQ, len(allowed) - i + 3, 0, value) for i, value in enumerate(allowed)]
    return [
        _load_argument(1),
        *tests,
        Instruction(_JGT, 0, 3, commands.GPU_IOCTL_LAST),
        Instruction(_ALU_AND, 0, 0, 0xFF00),
        Instruction(_JEQ, 1, 0, commands.GPU_IOCTL_TYPE),
        _refuse(errno.ENOTTY),
        _return(_RET_ALLOW),
    ]


def _prlimit_rule(pid: int) -> list[Instruction]:
    # prlimit64(pid, resource, new, old): reading its own limits, as getrlimit() does, is allowed; setting any is refused.
    return [
        _load_argument(0),
        Instruction(_JEQ, 1, 0, 0),
        Instruction(_JEQ, 0, 4, pid),
        _load_argument(2),
        Instruction(_JEQ, 0, 2, 0),
        _load_argument(2, high=True),
        Instruction(_JEQ, 1, 0, 0),
        _refuse(errno.EPERM),
        _return(_RET_ALLOW),
    ]


def build_filter(machine: Machine, pid: int, *, gpu: bool = False) -> list[Instruction]:
    """Assemble the filter for ``machine``.

    :param pid: the only process that it may signal: its own.
    :param gpu: whether it may use a GPU, whose driver has requests of its own.
    :returns: instructions, at most 4096 as the kernel requires; a pure function, so that tests can interpret the result.
    """
    numbers = machine.numbers
    program = [
        Instruction(_LD_W_ABS, 0, 0, _OFF_ARCH),
        # Calls of another ABI have other numbers, which the rest of the filter would take for harmless ones.
        Instruction(_JEQ, 1, 0, machine.audit_arch),
        _return(_RET_KILL_PROCESS),
        Instruction(_LD_W_ABS, 0, 0, _OFF_NR),
        Instruction(_JGT, 0, 1, machine.last_known),
        _refuse(errno.ENOSYS),
    ]
    program += _when(numbers["clone"], _clone_rule())
    program += _when(numbers["kill"], _one_of(0, (pid,)))
    program += _when(numbers["tgkill"], _one_of(0, (pid,)))
    program += _when(numbers["prlimit64"], _prlimit_rule(pid))
    program += _when(numbers["prctl"], _one_of(0, commands.PRCTL.values()))
    program += _when(numbers["fcntl"], _one_of(1, commands.FCNTL.values()))
    program += _when(numbers["ioctl"], _ioctl_rule(gpu=gpu))
    program += _when(numbers["mmap"], _mmap_rule(gpu=gpu))
    program += _when(numbers["madvise"], _one_of(2, commands.MADVISE.values(), errno.EINVAL))
    program += _when(numbers["fadvise64"], _one_of(3, commands.FADVISE.values(), errno.EINVAL))
    program += _when(numbers["fallocate"], _one_of(1, commands.FALLOCATE.values(), errno.EOPNOTSUPP))
    program += _when(numbers["close_range"], _one_of(2, commands.CLOSE_RANGE.values(), errno.EINVAL))
    for name in DENIED:
        if name in numbers:
            program += _when(numbers[name], [_refuse(errno.EPERM)])
    for name in ABSENT:
        if name in numbers:
            program += _when(numbers[name], [_refuse(errno.ENOSYS)])
    program.append(_return(_RET_ALLOW))
    return program


class _Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.c_void_p)]


def available() -> bool:
    """Return whether this kernel and machine support the filter."""
    number = _SECCOMP_NUMBER.get(platform.machine())
    if number is None or os.name != "posix" or platform.system() != "Linux":
        return False
    libc = ctypes.CDLL(None, use_errno=True)
    action = ctypes.c_uint32(_RET_ERRNO)
    return bool(libc.syscall(number, _SECCOMP_GET_ACTION_AVAIL, 0, ctypes.byref(action)) == 0)


def install(*, gpu: bool = False) -> None:
    """Install the filter permanently for all threads of this process; needs no privileges.

    :param gpu: see `build_filter`.
    :raises OSError: the kernel refused the filter.
    """
    machine = MACHINES[platform.machine()]
    code = b"".join(instruction.pack() for instruction in build_filter(machine, os.getpid(), gpu=gpu))
    buffer = ctypes.create_string_buffer(code, len(code))
    program = _Program(len(code) // 8, ctypes.addressof(buffer))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_NO_NEW_PRIVS) failed")
    number = _SECCOMP_NUMBER[machine.name]
    result = libc.syscall(number, _SECCOMP_SET_MODE_FILTER, _SECCOMP_FILTER_FLAG_TSYNC, ctypes.byref(program))
    if result != 0:
        raise OSError(ctypes.get_errno(), "seccomp(SECCOMP_SET_MODE_FILTER) failed")
