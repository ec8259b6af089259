"""System call numbers of the two supported architectures.

From the kernel headers (Linux 6.1: ``asm/unistd_64.h`` and ``asm-generic/unistd.h``). Only calls that the
filter names are listed. A call that a machine does not have (``fork`` on aarch64) is absent from its table.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

_X86_64 = {
    "socket": 41, "socketpair": 53, "bind": 49, "connect": 42, "listen": 50, "accept": 43, "accept4": 288,
    "sendto": 44, "recvfrom": 45, "sendmsg": 46, "recvmsg": 47, "sendmmsg": 307, "recvmmsg": 299,
    "shutdown": 48, "getsockname": 51, "getpeername": 52, "setsockopt": 54, "getsockopt": 55, "fork": 57,
    "vfork": 58, "execve": 59, "execveat": 322, "setsid": 112, "setpgid": 109, "ptrace": 101,
    "process_vm_readv": 310, "process_vm_writev": 311, "process_madvise": 440, "process_mrelease": 448,
    "kcmp": 312, "pidfd_open": 434, "pidfd_getfd": 438, "pidfd_send_signal": 424, "tkill": 200,
    "rt_sigqueueinfo": 129, "rt_tgsigqueueinfo": 297, "migrate_pages": 256, "move_pages": 279,
    "setpriority": 141, "ioprio_set": 251, "sched_setaffinity": 203, "sched_setscheduler": 144,
    "sched_setparam": 142, "sched_setattr": 314, "setrlimit": 160, "unshare": 272, "setns": 308,
    "mount": 165, "umount2": 166, "pivot_root": 155, "chroot": 161, "fsopen": 430, "fsconfig": 431,
    "fsmount": 432, "fspick": 433, "move_mount": 429, "open_tree": 428, "mount_setattr": 442, "keyctl": 250,
    "add_key": 248, "request_key": 249, "bpf": 321, "perf_event_open": 298, "kexec_load": 246,
    "kexec_file_load": 320, "init_module": 175, "finit_module": 313, "delete_module": 176,
    "userfaultfd": 323, "personality": 135, "open_by_handle_at": 304, "name_to_handle_at": 303,
    "quotactl": 179, "quotactl_fd": 443, "swapon": 167, "swapoff": 168, "reboot": 169, "sethostname": 170,
    "setdomainname": 171, "acct": 163, "syslog": 103, "settimeofday": 164, "clock_settime": 227,
    "adjtimex": 159, "clock_adjtime": 305, "ioperm": 173, "iopl": 172, "modify_ldt": 154, "vhangup": 153,
    "nfsservctl": 180, "lookup_dcookie": 212, "fanotify_init": 300, "fanotify_mark": 301, "uselib": 134,
    "_sysctl": 156, "sysfs": 139, "shmget": 29, "shmat": 30, "shmctl": 31, "shmdt": 67, "msgget": 68,
    "msgsnd": 69, "msgrcv": 70, "msgctl": 71, "semget": 64, "semop": 65, "semctl": 66, "semtimedop": 220,
    "mq_open": 240, "mq_unlink": 241, "mq_timedsend": 242, "mq_timedreceive": 243, "mq_notify": 244,
    "mq_getsetattr": 245, "memfd_create": 319, "memfd_secret": 447, "io_uring_setup": 425,
    "io_uring_enter": 426, "io_uring_register": 427, "io_setup": 206, "io_submit": 209, "io_destroy": 207,
    "io_getevents": 208, "io_cancel": 210, "mknod": 133, "mknodat": 259, "chmod": 90, "fchmod": 91,
    "fchmodat": 268, "chown": 92, "fchown": 93, "lchown": 94, "fchownat": 260, "setxattr": 188,
    "lsetxattr": 189, "fsetxattr": 190, "removexattr": 197, "lremovexattr": 198, "fremovexattr": 199,
    "utime": 132, "utimes": 235, "utimensat": 280, "futimesat": 261, "truncate": 76, "clone": 56,
    "clone3": 435, "kill": 62, "tgkill": 234, "prlimit64": 302, "prctl": 157, "fcntl": 72, "ioctl": 16,
    "mmap": 9, "madvise": 28, "fadvise64": 221, "fallocate": 285, "close_range": 436, "flock": 73, "sync": 162,
    "syncfs": 306, "inotify_init": 253, "inotify_init1": 294, "inotify_add_watch": 254, "inotify_rm_watch": 255,
    "splice": 275, "tee": 276, "vmsplice": 278, "sendfile": 40, "seccomp": 317, "landlock_create_ruleset": 444,
    "landlock_add_rule": 445, "landlock_restrict_self": 446,
}  # fmt: skip
_AARCH64 = {
    "socket": 198, "socketpair": 199, "bind": 200, "connect": 203, "listen": 201, "accept": 202,
    "accept4": 242, "sendto": 206, "recvfrom": 207, "sendmsg": 211, "recvmsg": 212, "sendmmsg": 269,
    "recvmmsg": 243, "shutdown": 210, "getsockname": 204, "getpeername": 205, "setsockopt": 208,
    "getsockopt": 209, "execve": 221, "execveat": 281, "setsid": 157, "setpgid": 154, "ptrace": 117,
    "process_vm_readv": 270, "process_vm_writev": 271, "process_madvise": 440, "process_mrelease": 448,
    "kcmp": 272, "pidfd_open": 434, "pidfd_getfd": 438, "pidfd_send_signal": 424, "tkill": 130,
    "rt_sigqueueinfo": 138, "rt_tgsigqueueinfo": 240, "migrate_pages": 238, "move_pages": 239,
    "setpriority": 140, "ioprio_set": 30, "sched_setaffinity": 122, "sched_setscheduler": 119,
    "sched_setparam": 118, "sched_setattr": 274, "setrlimit": 164, "unshare": 97, "setns": 268, "mount": 40,
    "umount2": 39, "pivot_root": 41, "chroot": 51, "fsopen": 430, "fsconfig": 431, "fsmount": 432,
    "fspick": 433, "move_mount": 429, "open_tree": 428, "mount_setattr": 442, "keyctl": 219, "add_key": 217,
    "request_key": 218, "bpf": 280, "perf_event_open": 241, "kexec_load": 104, "kexec_file_load": 294,
    "init_module": 105, "finit_module": 273, "delete_module": 106, "userfaultfd": 282, "personality": 92,
    "open_by_handle_at": 265, "name_to_handle_at": 264, "quotactl": 60, "quotactl_fd": 443, "swapon": 224,
    "swapoff": 225, "reboot": 142, "sethostname": 161, "setdomainname": 162, "acct": 89, "syslog": 116,
    "settimeofday": 170, "clock_settime": 112, "adjtimex": 171, "clock_adjtime": 266, "vhangup": 58,
    "nfsservctl": 42, "lookup_dcookie": 18, "fanotify_init": 262, "fanotify_mark": 263, "shmget": 194,
    "shmat": 196, "shmctl": 195, "shmdt": 197, "msgget": 186, "msgsnd": 189, "msgrcv": 188, "msgctl": 187,
    "semget": 190, "semop": 193, "semctl": 191, "semtimedop": 192, "mq_open": 180, "mq_unlink": 181,
    "mq_timedsend": 182, "mq_timedreceive": 183, "mq_notify": 184, "mq_getsetattr": 185, "memfd_create": 279,
    "memfd_secret": 447, "io_uring_setup": 425, "io_uring_enter": 426, "io_uring_register": 427,
    "io_setup": 0, "io_submit": 2, "io_destroy": 1, "io_getevents": 4, "io_cancel": 3, "mknodat": 33,
    "fchmod": 52, "fchmodat": 53, "fchown": 55, "fchownat": 54, "setxattr": 5, "lsetxattr": 6,
    "fsetxattr": 7, "removexattr": 14, "lremovexattr": 15, "fremovexattr": 16, "utimensat": 88,
    "truncate": 45, "clone": 220, "clone3": 435, "kill": 129, "tgkill": 131, "prlimit64": 261, "prctl": 167,
    "fcntl": 25, "ioctl": 29, "mmap": 222, "madvise": 233, "fadvise64": 223, "fallocate": 47, "close_range": 436,
    "flock": 32, "sync": 81, "syncfs": 267, "inotify_init1": 26, "inotify_add_watch": 27, "inotify_rm_watch": 28,
    "splice": 76, "tee": 77, "vmsplice": 75, "sendfile": 71, "seccomp": 277, "landlock_create_ruleset": 444,
    "landlock_add_rule": 445, "landlock_restrict_self": 446,
}  # fmt: skip


@dataclass(frozen=True)
class Machine:
    """The facts about an architecture that the filter uses."""

    name: str
    audit_arch: int
    """``AUDIT_ARCH_…`` of linux/audit.h; a call in another ABI (int 0x80) has another value."""
    last_known: int
    """Highest system call number that was reviewed; calls above it are refused as unknown (x32 calls lie above too)."""
    numbers: Mapping[str, int]


MACHINES: Mapping[str, Machine] = MappingProxyType(
    {
        "x86_64": Machine("x86_64", 0xC000003E, 450, MappingProxyType(_X86_64)),
        "aarch64": Machine("aarch64", 0xC00000B7, 450, MappingProxyType(_AARCH64)),
    }
)
