"""A seccomp filter, assembled by hand as classic BPF.

The filter is a deny-list over the calls reviewed in `dressage.sandbox.syscalls`: JAX, MuJoCo, BLAS and the allocator use
a large and changing set of harmless calls, so an allow-list would break with each of their releases, while the calls that
reach beyond the process are few and stable. Calls newer than the review fail with ENOSYS, so the list stays complete
on newer kernels. Refusals are errors, not kills: a library that probes for a call falls back, and a hostile program gets
an exception that its report can quote.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
from dataclasses import dataclass

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

_CLONE_VM, _CLONE_SIGHAND, _CLONE_THREAD = 0x00000100, 0x00000800, 0x00010000
_CLONE_NEW = 0x7E020080  # every CLONE_NEW… namespace flag
_PR_SET_PDEATHSIG, _PR_SET_PTRACER = 1, 0x59616D61
_F_SETOWN, _F_SETSIG, _F_SETOWN_EX = 8, 10, 15

DENIED: tuple[str, ...] = (
    # Network and local sockets of every kind.
    "socket", "socketpair", "bind", "connect", "listen", "accept", "accept4", "sendto", "recvfrom", "sendmsg",
    "recvmsg", "sendmmsg", "recvmmsg", "shutdown", "getsockname", "getpeername", "setsockopt", "getsockopt",
    # Other processes: making them, looking into them, signalling them, leaving the group that is killed whole.
    "fork", "vfork", "execve", "execveat", "setsid", "setpgid", "ptrace", "process_vm_readv", "process_vm_writev",
    "process_madvise", "process_mrelease", "kcmp", "pidfd_open", "pidfd_getfd", "pidfd_send_signal", "tkill",
    "rt_sigqueueinfo", "rt_tgsigqueueinfo", "migrate_pages", "move_pages",
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
    # File metadata, which Landlock does not cover: the owner's files elsewhere could be changed by path.
    "mknod", "mknodat", "chmod", "fchmod", "fchmodat", "chown", "fchown", "lchown", "fchownat", "setxattr",
    "lsetxattr", "fsetxattr", "removexattr", "lremovexattr", "fremovexattr", "utime", "utimes", "utimensat",
    "futimesat", "truncate",
)  # fmt: skip
# Answered as if the kernel were older: glibc then makes threads by clone(), whose flags a filter can read.
ABSENT: tuple[str, ...] = ("clone3", "io_uring_setup", "io_uring_enter", "io_uring_register", "memfd_secret")


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


def _one_of(index: int, values: tuple[int, ...]) -> list[Instruction]:
    """Allow the call if the low word of its argument is among ``values``, else EPERM."""
    tests = [Instruction(_JEQ, len(values) - i, 0, value) for i, value in enumerate(values)]
    return [_load_argument(index), *tests, _refuse(errno.EPERM), _return(_RET_ALLOW)]


def _none_of(index: int, values: tuple[int, ...]) -> list[Instruction]:
    """Refuse the call with EPERM if the low word of its argument is among ``values``, else allow it."""
    tests = [Instruction(_JEQ, len(values) - i, 0, value) for i, value in enumerate(values)]
    return [_load_argument(index), *tests, _return(_RET_ALLOW), _refuse(errno.EPERM)]


def _clone_rule() -> list[Instruction]:
    # The thread flags all set and no namespace flag set: exactly a thread of this process.
    thread_flags = _CLONE_VM | _CLONE_SIGHAND | _CLONE_THREAD
    return [
        _load_argument(0),
        Instruction(_ALU_AND, 0, 0, thread_flags | _CLONE_NEW),
        Instruction(_JEQ, 0, 1, thread_flags),
        _return(_RET_ALLOW),
        _refuse(errno.EPERM),
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


def build_filter(machine: Machine, pid: int) -> list[Instruction]:
    """Assemble the filter for ``machine``; ``pid`` is the only process it may signal (its own).

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
    # Otherwise it could outlive its parent, or let another process trace it.
    program += _when(numbers["prctl"], _none_of(0, (_PR_SET_PDEATHSIG, _PR_SET_PTRACER)))
    # Asynchronous I/O can send any signal to any process of the same user.
    program += _when(numbers["fcntl"], _none_of(1, (_F_SETOWN, _F_SETSIG, _F_SETOWN_EX)))
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


def install() -> None:
    """Install the filter permanently for all threads of this process; needs no privileges.

    :raises OSError: the kernel refused the filter.
    """
    machine = MACHINES[platform.machine()]
    code = b"".join(instruction.pack() for instruction in build_filter(machine, os.getpid()))
    buffer = ctypes.create_string_buffer(code, len(code))
    program = _Program(len(code) // 8, ctypes.addressof(buffer))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_NO_NEW_PRIVS) failed")
    number = _SECCOMP_NUMBER[machine.name]
    result = libc.syscall(number, _SECCOMP_SET_MODE_FILTER, _SECCOMP_FILTER_FLAG_TSYNC, ctypes.byref(program))
    if result != 0:
        raise OSError(ctypes.get_errno(), "seccomp(SECCOMP_SET_MODE_FILTER) failed")
